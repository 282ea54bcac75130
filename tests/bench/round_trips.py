"""Round trips per second of constant SELECTs and of rows by key, measured by PostgreSQL's pgbench.

Constant SELECTs are compared with PostgreSQL. Rows by key are read with privileges on the table, and on its columns,
and compared with a superuser, whose privileges are not checked.
"""

from __future__ import annotations

from functools import partial

import psycopg

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers, alternate

CONNECTIONS = (1, 32)
ROUNDS = 3
SCRIPTS = {
    "SELECT 1, simple": ("simple", "SELECT 1;\n"),
    "SELECT 1, extended": ("extended", "SELECT 1;\n"),
    "SELECT 1, prepared": ("prepared", "SELECT 1;\n"),
    "SELECT of 1,000 distinct constants, simple": ("simple", "\\set x random(1, 1000)\nSELECT :x;\n"),
    "SELECT $1::int, extended": ("extended", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
    "SELECT $1::int, prepared": ("prepared", "\\set x random(1, 1000000)\nSELECT :x::int;\n"),
}
ROWS = 10_000
BY_KEY = f"\\set x random(1, {ROWS})\nSELECT v FROM by_key WHERE id = :x;\n"
SETUP = f"""
CREATE TABLE by_key (id bigint PRIMARY KEY, v text);
INSERT INTO by_key SELECT g, 'row ' || g FROM generate_series(1, {ROWS}) g;
CREATE ROLE of_table LOGIN;
GRANT SELECT ON by_key TO of_table;
CREATE ROLE of_columns LOGIN;
GRANT SELECT (id, v) ON by_key TO of_columns;
"""


def run(servers: Servers) -> list[Line]:
    ours, theirs = servers.tidewire.dsn, servers.postgres.dsn
    lines = []
    for name, (mode, script) in SCRIPTS.items():
        for clients in CONNECTIONS:
            about = f"{name}, {clients} connection{'s' if clients > 1 else ''}"
            lines.append(_line(about, ours, theirs, script, clients, mode, "at least 1 x PostgreSQL"))
    with psycopg.connect(ours, autocommit=True) as connection:
        connection.execute(SETUP)
    for role, what in (("of_table", "the table"), ("of_columns", "its columns")):
        about = f"row by key, prepared, 32 connections, with privileges on {what}, compared with a superuser"
        own = ours.replace("materialize@", f"{role}@")
        lines.append(_line(about, own, ours, BY_KEY, 32, "prepared", "at least 0.95 x"))
    return lines


def _line(about: str, ours: str, theirs: str, script: str, clients: int, mode: str, target: str) -> Line:
    rates = (partial(_rate, dsn, script, clients, mode) for dsn in (ours, theirs))
    a, b, ratio = alternate(*rates, ROUNDS)
    return Line(about, f"{a:,.0f}/s", f"{b:,.0f}/s", f"{ratio:.2f} x", target)


def _rate(dsn: str, script: str, clients: int, mode: str) -> float:
    return pgbench(dsn, script, clients=clients, mode=mode).rate
