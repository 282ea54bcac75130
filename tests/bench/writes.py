"""UPDATE and DELETE by key, measured by PostgreSQL's pgbench: statements per second of 1 and of 16 clients."""

from __future__ import annotations

import statistics

import psycopg

from tests.bench.pgbench import pgbench
from tests.bench.servers import Line, Servers

ROWS = 100_000
ROUNDS = 3
CREATE = f"""
    DROP TABLE IF EXISTS accounts;
    CREATE TABLE accounts (id bigint NOT NULL, kind int NOT NULL, name text, balance double precision);
    INSERT INTO accounts SELECT i, i % 100, 'account ' || i, 1.5 FROM generate_series(1, {ROWS}) AS s(i);
"""
KEY = f"\\set id random(1, {ROWS})\n"
UPDATE = KEY + "UPDATE accounts SET balance = balance + 1 WHERE id = :id;\n"
DELETE = KEY + "DELETE FROM accounts WHERE id = :id;\n"
CASES = (
    ("UPDATE by key, prepared", "prepared", UPDATE, 1, "at least 300/s"),
    ("UPDATE by key, simple", "simple", UPDATE, 1, ""),
    ("UPDATE by key, prepared", "prepared", UPDATE, 16, "at least 1,000/s"),
    ("DELETE by key, prepared", "prepared", DELETE, 1, "at least 300/s"),
    ("DELETE by key, prepared", "prepared", DELETE, 16, "at least 1,000/s"),
)


def run(servers: Servers) -> list[Line]:
    """PostgreSQL has an index on the key; Tidewire has none."""
    sides = (servers.tidewire.dsn, servers.postgres.dsn)
    for dsn in sides:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(CREATE.encode())
    with psycopg.connect(sides[1], autocommit=True) as connection:
        connection.execute("CREATE INDEX ON accounts (id)")
    lines = []
    for name, mode, script, clients, target in CASES:
        pgbench(sides[0], script, clients=clients, mode=mode)  # the JVM compiles the statement's code
        pairs = [tuple(pgbench(dsn, script, clients=clients, mode=mode).rate for dsn in sides) for _ in range(ROUNDS)]
        ours, theirs, ratio = (
            statistics.median(values) for values in zip(*((a, b, a / b) for a, b in pairs), strict=True)
        )
        case = f"{name}, {ROWS:,} rows, {clients} client{'s' if clients > 1 else ''}"
        lines.append(Line(case, f"{ours:,.0f}/s", f"{theirs:,.0f}/s", f"{ratio:.2f} x", target))
    return lines
