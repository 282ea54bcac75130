"""Queries of clients over system catalogs: psql's backslash commands compared with PostgreSQL, drivers, functions.

The server of these tests has no Spark: queries over system catalogs never wait for it.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import duckdb
import psycopg
import pyarrow as pa
import pytest
from psycopg import errors, sql

from catalog.objects.kinds import KINDS
from server.pg_catalog.database import Database
from tests.fix_postgres import PostgresServer, binaries
from tests.fix_server import ServerThread


class NothingComputed:
    """An engine for materialized views that nobody reads: all are empty. It is never ready."""

    ready, unavailable, running, waiting, jvm_pid = False, None, 0, 0, None

    async def run(self, query: str, views: dict[str, pa.Table]) -> pa.Table:
        assert not views or all(name.startswith("u") for name in views), f"system relations went to the engine: {query}"
        names = re.findall(r"AS (c\d+)\b", query.split("FROM")[0])
        return pa.table([pa.nulls(0)] * len(names), names=names)

    async def start(self) -> None: ...

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...


SCHEMA = """
CREATE SCHEMA s2;
CREATE TABLE flights (
    id int8 NOT NULL, carrier text NOT NULL, origin text, seats int4 DEFAULT 5, price numeric(10,2), tags text[],
    code char(3), note varchar(20), at timestamptz DEFAULT now(), PRIMARY KEY (id)
);
CREATE TABLE carriers (code text PRIMARY KEY, name text UNIQUE, "Full Name" text);
CREATE TABLE s2.other (a int4, b jsonb);
CREATE VIEW cheap AS SELECT id, price FROM flights WHERE price < 10;
CREATE MATERIALIZED VIEW per_carrier AS SELECT carrier, count(*) AS n FROM flights GROUP BY carrier;
CREATE INDEX flights_carrier ON flights (carrier);
CREATE INDEX ON flights (origin, id);
CREATE TABLE s2.legs (
    flight int8 REFERENCES flights ON DELETE CASCADE, carrier text NOT NULL, after int8 UNIQUE,
    FOREIGN KEY (after) REFERENCES s2.legs (after),
    CONSTRAINT by_carrier FOREIGN KEY (carrier) REFERENCES carriers (code) ON UPDATE CASCADE DEFERRABLE
);
COMMENT ON TABLE carriers IS 'who flies';
COMMENT ON COLUMN carriers.code IS 'by IATA';
COMMENT ON VIEW cheap IS 'below 10';
COMMENT ON SCHEMA s2 IS 'the other one';
COMMENT ON DATABASE materialize IS 'the only one';
CREATE TABLE s2.written (x int8 DEFAULT 1, t text DEFAULT 'EWR', v varchar(3) DEFAULT 'a');
CREATE INDEX ON s2.written (t, (x % 2));
"""


def served(directory: Path, schema: Iterable[str]) -> Iterator[ServerThread]:
    """A server whose objects these statements create."""
    server = ServerThread(directory, NothingComputed())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for statement in schema:
            connection.execute(statement.encode())
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tidewire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    yield from served(tmp_path_factory.mktemp("data"), SCHEMA.split(";\n")[:-1])


def same_names(schema: Iterable[str]) -> Iterator[str]:
    """A PostgreSQL of its own with these objects, whose role and database `materialize` owns everything."""
    server = PostgresServer()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE materialize SUPERUSER CREATEROLE CREATEDB BYPASSRLS LOGIN")
        connection.execute("CREATE DATABASE materialize OWNER materialize")
    dsn = f"postgresql://materialize@127.0.0.1:{server.port}/materialize"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA public OWNER TO materialize")
        for statement in schema:
            connection.execute(statement.encode())
    yield dsn
    server.stop()


@pytest.fixture(scope="module")
def oracle() -> Iterator[str]:
    yield from same_names([SCHEMA])


def psql(dsn: str, command: str) -> str:
    done = subprocess.run(
        [binaries() / "psql", dsn, "-X", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


# -- psql -----------------------------------------------------------------------------------------------------------

EQUAL = r"""
\dt
\dt public.*
\dt s2.*
\d s2.other
\d s2.legs
\dt f*
\dv
\dv+
\dm
\di
\ds
\d
\d flights
\d+ flights
\d public.flights
\d cheap
\d per_carrier
\d flights_carrier
\d flights_origin_id_idx
\d carriers
\d+ carriers
\d "no such"
\du materialize
\du+ materialize
\dg materialize
\df
\df+
\da
\dT
\dT+
\dp
\z
\ddp
\dD
\dE
\dC nothing
\do nothing
\dO
\des
\dew
\deu
\det
\dF nothing
\dFd nothing
\dFp nothing
\dFt nothing
\dRp
\dRs
\dX
\dy
\dP
\dP+
\dA
\dAo nothing
\dAp nothing
\dAc nothing
\dAf nothing
\dRp+
\dRs+
\dO+
\dE+
\dD+
\drg materialize
\dc
\dl
\dL nothing
\drds
\dconfig max_identifier_length
\dn s2
\dn+ s2
\dt+ nothing
\dd cheap
\d pg_catalog.pg_namespace
\encoding
\sf nothing
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", EQUAL.strip().splitlines())
def test_psql_prints_what_it_prints_of_postgresql(tidewire: ServerThread, oracle: str, command: str) -> None:
    ours, theirs = psql(tidewire.dsn(), command), psql(oracle, command)
    if command == r"\d pg_catalog.pg_namespace":  # Tidewire's have no indexes
        theirs = theirs.partition("Indexes:")[0] + "\n"
    assert ours.replace(" NOT ENFORCED", "") == theirs


DIFFERENT = {
    r"\l": " materialize | materialize | UTF8     | libc            | C       | C ",
    r"\l+": "| pg_default | ",
    r"\dn": " mz_catalog  | materialize\n",
    r"\dt+": " public | flights  | table | materialize | permanent   | heap          | 0 bytes | ",
    r"\di+": " public | flights_carrier       | index | materialize | flights  | permanent ",
    r"\dm+": " public | per_carrier | materialized view | materialize | permanent ",
    r"\d+ cheap": "View definition:\n SELECT id, price FROM flights WHERE price < 10;\n",
    r"\d+ per_carrier": "View definition:\n SELECT carrier, count(*) AS n FROM flights GROUP BY carrier;\n",
    r"\sv cheap": "CREATE OR REPLACE VIEW public.cheap AS\n SELECT id, price FROM flights WHERE price < 10\n",
    r"\sf upper": "CREATE OR REPLACE FUNCTION pg_catalog.upper(text)\n RETURNS text\n LANGUAGE internal\n",
    r"\dt mz_catalog.*": " mz_catalog | mz_objects            | table | materialize\n",
    r"\conninfo": 'You are connected to database "materialize" as user "materialize" on host "127.0.0.1"',
    r"\dtS pg_cl*": " pg_catalog | pg_class | table | materialize\n",
    r"\d s2.written": """ x      | bigint               |           |          | 1
 t      | text                 |           |          | 'EWR'::text
 v      | character varying(3) |           |          | 'a'::character varying
Indexes:
    "written_t_expr_idx" btree (t, (x % 2))
""",
    r"\d s2.written_t_expr_idx": """ t      | text   | yes  | t
 expr   | bigint | yes  | (x % 2)
""",
    r"\df pg_catalog.lower": " pg_catalog | lower | text             | text                | func\n(1 row)",
    r"\dx": " tidewire | 1.0     | pg_catalog |",
    r"\db": " pg_default | materialize | \n",
    r"\dL": "List of languages",
    r"\dC": " timestamp without time zone | timestamp without time zone | timestamp          | yes\n",
    r"\do": "(0 rows)",
    r"\dconfig": " Parameter",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", DIFFERENT)
def test_psql_prints_what_tidewire_has(tidewire: ServerThread, command: str) -> None:
    printed = psql(tidewire.dsn(), command)
    assert DIFFERENT[command] in printed
    assert "ERROR" not in printed


def test_psql_sees_definitions_of_its_own_transaction(tidewire: ServerThread) -> None:
    command = "BEGIN; CREATE TABLE mine (x int4); SELECT relname FROM pg_class WHERE relname = 'mine'; ROLLBACK"
    assert " mine\n(1 row)" in psql(tidewire.dsn(), command)
    assert "Did not find any relation" in psql(tidewire.dsn(), r"\d mine")


def test_the_search_path_tells_what_is_visible(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        shown = "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) AND relname IN ('flights', 'other')"
        assert connection.execute(shown).fetchall() == [("flights",)]
        connection.execute("SET search_path = s2")
        assert connection.execute(shown).fetchall() == [("other",)]
        assert connection.execute("SELECT 'public.flights'::regclass::text").fetchone() == ("public.flights",)
        assert connection.execute("SELECT 'other'::regclass::text").fetchone() == ("other",)


# -- queries --------------------------------------------------------------------------------------------------------

QUERIES = (Path(__file__).parent / "pg_catalog.sql").read_text().removesuffix(";\n").split(";\n")


# The types that clients see for types that Tidewire sends as text: regproc, pg_node_tree, aclitem, regclass, ...
TEXT_TYPES = {24: 25, 194: 25, 1034: 1009, 2205: 25, 2206: 25, 2277: 25}


@pytest.mark.parametrize("query", QUERIES)
def test_queries_give_what_postgresql_gives(tidewire: ServerThread, oracle: str, query: str) -> None:
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            assert cursor.description is not None
            columns = [
                (column.name, TEXT_TYPES.get(column.type_code, column.type_code)) for column in cursor.description
            ]
            answers.append((columns, cursor.fetchall()))
    assert answers[0] == answers[1]


def test_a_parameter_of_any_is_an_array(tidewire: ServerThread, oracle: str) -> None:
    query = "SELECT relname FROM pg_class WHERE relkind = ANY(%s) AND relname = ANY(%s) ORDER BY 1"
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection:
            answers.append(connection.execute(query, [["r", "v"], ["flights", "cheap"]]).fetchall())
    assert answers[0] == answers[1] == [("cheap",), ("flights",)]


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("SELECT nothing FROM pg_class", errors.UndefinedColumn),
        ("SELECT 'nothing'::regclass", errors.UndefinedTable),
        *[(f"SELECT '{name}'::{type}", errors.InvalidName) for name in (".", "") for type in ("regclass", "regrole")],
        ("SELECT 1e400::regclass", psycopg.errors.InvalidName),
        ("SELECT 'nothing'::regtype", errors.UndefinedObject),
        ("SELECT pg_relation_size('nothing')", errors.UndefinedTable),
        ("SELECT pg_total_relation_size('nothing'::text) FROM pg_class", errors.UndefinedTable),
        ("SELECT relname FROM pg_class WHERE oid = 'abc'::oid", errors.InvalidTextRepresentation),
        ("SELECT nonsense(oid) FROM pg_class", errors.UndefinedFunction),
        ("SELECT read_csv('/etc/passwd') FROM pg_class", errors.UndefinedFunction),
        ("SELECT x FROM pg_class, read_text('/etc/passwd') AS x", errors.UndefinedFunction),
        ("SELECT * FROM pg_nothing", errors.UndefinedTable),
        ('SELECT * FROM pg_class, "/etc/passwd"', errors.UndefinedTable),
        ('SELECT 1 FROM (WITH "/etc/passwd" AS (SELECT 1) SELECT 2) x, pg_class, "/etc/passwd"', psycopg.Error),
        ("SUBSCRIBE pg_catalog.pg_class", errors.FeatureNotSupported),
        ("INSERT INTO pg_class VALUES (1)", psycopg.Error),
        ("DROP TABLE pg_catalog.pg_class", psycopg.Error),
    ],
)
def test_what_is_refused(tidewire: ServerThread, query: str, state: type[psycopg.Error]) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        with pytest.raises(state):
            connection.execute(query.encode()).fetchall()
        assert connection.execute("SELECT relname FROM pg_class WHERE relname = 'cheap'").fetchone() == ("cheap",)


def test_oids_stay(tidewire: ServerThread) -> None:
    """Through renames, and while other things come and go."""
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        oid = connection.execute("SELECT 'cheap'::regclass::oid").fetchone()
        connection.execute("CREATE TABLE other_table (x int4)")
        connection.execute("ALTER VIEW cheap RENAME TO cheaper")
        assert connection.execute("SELECT 'cheaper'::regclass::oid").fetchone() == oid
        connection.execute("ALTER VIEW cheaper RENAME TO cheap")
        connection.execute("DROP TABLE other_table")
        assert connection.execute("SELECT 'cheap'::regclass::oid").fetchone() == oid
        assert connection.execute("SELECT count(*) - count(DISTINCT oid) FROM pg_class").fetchone() == (0,)


def test_what_is_there_now(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True, application_name="me") as connection:
        pid = connection.info.backend_pid
        assert connection.execute("SELECT usename, state FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall() == [
            ("materialize", "active")
        ]
        connection.execute("SET statement_timeout = '5s'")
        setting = "SELECT setting, source FROM pg_settings WHERE name = 'statement_timeout'"
        assert connection.execute(setting).fetchone() == ("5000", "session")
        size = "SELECT pg_table_size('s2.other'::regclass)"
        before = connection.execute(size).fetchone()
        connection.execute("INSERT INTO s2.other VALUES (1, '{}')")
        after = connection.execute(size).fetchone()
        assert before is not None
        assert after is not None
        assert after[0] > before[0]
        assert connection.execute("SELECT count(*) FROM pg_locks").fetchone() == (0,)


def test_settings_are_shown_in_their_units(postgres: str, tidewire: ServerThread) -> None:
    names = "'work_mem', 'lock_timeout', 'enable_seqscan', 'random_page_cost', 'default_statistics_target', 'TimeZone'"
    shown = f"SELECT name, setting, unit, vartype, source FROM pg_settings WHERE name IN ({names}) ORDER BY name"
    with psycopg.connect(tidewire.dsn(), autocommit=True) as ours, psycopg.connect(postgres, autocommit=True) as theirs:
        for statement in ("SET lock_timeout = '1.5s'", "SET work_mem = '1GB'", "SET enable_seqscan = off"):
            ours.execute(statement.encode())
            theirs.execute(statement.encode())
        found, expected = (connection.execute(shown.encode()).fetchall() for connection in (ours, theirs))
        assert [row[:4] for row in found] == [row[:4] for row in expected]
        defaults = "SELECT boot_val, reset_val FROM pg_settings WHERE name = 'work_mem'"
        assert ours.execute(defaults).fetchall() == theirs.execute(defaults).fetchall()


def test_the_size_of_a_relation_is_asked_by_its_name(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE weighed (a text)")
        connection.execute("INSERT INTO weighed VALUES (repeat('x', 1000))")
        by_name, by_parameter, by_class = connection.execute(
            "SELECT pg_relation_size('weighed'), pg_relation_size(%s), pg_relation_size('weighed'::regclass)",
            ("weighed",),
        ).fetchone() or (0, 0, 0)
        connection.execute("DROP TABLE weighed")
    assert by_name == by_parameter == by_class > 0


def test_a_size_without_a_type_is_shown(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        assert connection.execute("SELECT pg_size_pretty(12345678)").fetchone() == ("12 MB",)


def test_system_tables_of_both_kinds_in_one_query(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA changes_the_catalog")
        query = "SELECT o.type FROM mz_objects o JOIN pg_class c ON c.relname = o.name WHERE c.relname = 'flights'"
        assert connection.execute(query).fetchall() == [("table",)]


@pytest.mark.long
def test_every_relation_can_be_read(tidewire: ServerThread) -> None:
    """Each with PostgreSQL's columns, if without rows."""
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        relations = connection.execute(
            "SELECT n.nspname, c.relname, c.relnatts FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')"
        ).fetchall()
        assert len(relations) > 190
        for schema, name, width in relations:
            cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name)))
            assert cursor.description is not None
            assert len(cursor.description) == width, name


EVERY_KIND = {
    "table": ("CREATE TABLE a (x int4 PRIMARY KEY, y text)", {"a": "r", "a_pkey": "i"}),
    "view": ("CREATE VIEW v AS SELECT x FROM a", {"v": "v"}),
    "materialized view": ("CREATE MATERIALIZED VIEW m AS SELECT x FROM a", {"m": "m"}),
    "index": ("CREATE INDEX i ON a (y)", {"i": "i"}),
    "hold": ("CREATE HOLD h ON a, m", {}),
    "secret": ("CREATE SECRET pw AS 'hidden'", {}),
    "connection": ("CREATE CONNECTION c TO POSTGRES (HOST 'h', DATABASE 'd', PASSWORD SECRET pw)", {}),
    "source": ("CREATE SOURCE s FROM LOAD GENERATOR AUCTION", {"s": "r"}),
    "subsource": ("ALTER SOURCE s ADD SUBSOURCE bids AS sub", {"sub": "r"}),
    "source table": ("CREATE TABLE st FROM SOURCE s (REFERENCE users)", {"st": "r"}),
    "sequence": ("CREATE SEQUENCE q", {"q": "S"}),
    "type": ("CREATE TYPE t AS ENUM ('one')", {}),
    "domain": ("CREATE DOMAIN d AS t NOT NULL", {}),
    "sink": ("CREATE SINK out FROM a INTO FILE '{directory}/changes.json' FORMAT JSON ENVELOPE MATERIALIZE", {}),
}
"""The statement that creates an object of each kind, and the rows of pg_class that it adds: relname and relkind."""


@pytest.mark.long
def test_catalog_relations_are_whole_with_one_object_of_every_kind(tidewire: ServerThread, tmp_path: Path) -> None:
    """pg_class is complete after each CREATE, and each relation can be read when every kind of object exists."""
    assert EVERY_KIND.keys() == KINDS.keys() - {"system table"}
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE every_kind")
    with psycopg.connect(tidewire.dsn("every_kind"), autocommit=True) as connection:
        relations = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')"
        ).fetchall()
        assert len(relations) > 190
        expected: dict[str, str] = {}
        for kind, (statement, classes) in EVERY_KIND.items():
            connection.execute(statement.format(directory=tmp_path).encode())
            expected |= classes
            query = "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            assert dict(connection.execute(query).fetchall()) == expected, kind
            names = "('a', 'v', 'm', 'i', 'h', 'pw', 'c', 's', 'sub', 'st', 'q', 't', 'd', 'out')"
            found = connection.execute(f"SELECT type FROM mz_objects WHERE name IN {names}".encode()).fetchall()
            assert kind.replace(" ", "-") in {type.replace(" ", "-") for (type,) in found}
        for schema, name in relations:
            connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name)))
        with pytest.raises(errors.UndefinedTable, match='relation "h" does not exist'):
            connection.execute("SELECT 'h'::regclass")
    assert psql(tidewire.dsn("every_kind"), r"\dt") == psql(tidewire.dsn("every_kind"), r"\dt a|s*")


def test_an_error_while_a_relation_is_read_is_reported_and_leaves_nothing_stale() -> None:
    """The next query reads the relation again; an unknown relation is not an error of the reader."""
    failing, present = True, pa.table({"relname": ["a"]})

    def rows(schema: str, name: str) -> pa.Table | None:
        if name != "pg_class":
            return None
        if failing:
            raise KeyError(name)
        return present

    database, query = Database(), "SELECT relname FROM pg.pg_class"
    with pytest.raises(KeyError, match="pg_class"):
        database.run(query, rows)
    failing = False
    assert database.run(query, rows).to_pydict() == {"relname": ["a"]}
    with pytest.raises(duckdb.CatalogException, match="unknown"):
        database.run("SELECT * FROM pg.unknown", rows)


def test_roles_and_owners(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        for statement in (
            "CREATE ROLE readers",
            "CREATE USER ann",
            "GRANT readers TO ann",
            "CREATE TABLE anns (x int4)",
        ):
            connection.execute(statement.encode())
        connection.execute("ALTER TABLE anns OWNER TO ann")
        try:
            members = "SELECT pg_get_userbyid(roleid), pg_get_userbyid(member) FROM pg_auth_members"
            assert connection.execute(members).fetchall() == [("readers", "ann")]
            roles = "SELECT rolname, rolsuper, rolcanlogin FROM pg_roles WHERE rolname <> 'materialize' ORDER BY 1"
            assert connection.execute(roles).fetchall() == [("ann", False, True), ("readers", False, False)]
            assert connection.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'anns'").fetchall() == [
                ("ann",)
            ]
            assert " public | anns | table | ann\n" in psql(tidewire.dsn(), r"\dt anns")
            with psycopg.connect(tidewire.dsn(), user="ann", autocommit=True) as ann:
                assert ann.execute("SELECT current_user, relname FROM pg_class WHERE relname = 'anns'").fetchall() == [
                    ("ann", "anns")
                ]
                asked = "SELECT has_table_privilege('flights', 'SELECT') FROM pg_class WHERE relname = 'anns'"
                assert ann.execute(asked).fetchall() == [(False,)]
                asked = "SELECT relname FROM pg_class WHERE relkind = 'r' AND has_table_privilege(oid, 'INSERT')"
                assert ann.execute(asked).fetchall() == [("anns",)]
        finally:
            for statement in ("DROP TABLE anns", "DROP ROLE ann", "DROP ROLE readers"):
                connection.execute(statement.encode())


def test_set_config_changes_settings_as_set_does(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        set_config = "SELECT set_config(%s, %s, false)"
        assert connection.execute(set_config, ("search_path", "s2")).fetchone() == ("s2",)
        assert connection.execute("SHOW search_path").fetchone() == ("s2",)
        connection.execute("BEGIN")
        assert connection.execute("SELECT set_config('search_path', 'public', true)").fetchone() == ("public",)
        connection.execute("COMMIT")
        assert connection.execute("SELECT current_setting('search_path')").fetchone() == ("s2",)
        with pytest.raises(errors.UndefinedObject):
            connection.execute(set_config, ("nothing", "1"))


def test_copy_of_a_query_over_catalogs(tidewire: ServerThread) -> None:
    query = "COPY (SELECT nspname FROM pg_namespace WHERE nspname = 's2') TO STDOUT"
    with psycopg.connect(tidewire.dsn()) as connection, connection.cursor().copy(query) as copy:
        assert b"".join(copy) == b"s2\n"


# -- asyncpg --------------------------------------------------------------------------------------------------------

ARRAYS: list[tuple[str, Any]] = [
    ("int4[]", [1, None, 3]),
    ("int8[]", []),
    ("text[]", ["a", None, 'b"c', "d,e"]),
    ("numeric[]", [Decimal("1.5"), Decimal("-20")]),
    ("timestamptz[]", [datetime(2020, 1, 1, tzinfo=UTC)]),
    ("date[]", [date(2020, 2, 29)]),
    ("bool[]", [True, False]),
    ("float8[]", [1.5]),
    ("uuid[]", [UUID(int=5)]),
    ("bytea[]", [b"\0x"]),
    ("interval[]", [timedelta(days=1, seconds=2)]),
    ("oid[]", [1, 4294967295]),
    ("name[]", ["x"]),
    ("oid", 4294967295),
    ("name", "x"),
    ('"char"', b"r"),
    ("regclass", "flights"),
    ("regtype", "integer"),
]


@pytest.mark.parametrize(("type", "value"), ARRAYS, ids=[type for type, _ in ARRAYS])
@pytest.mark.slow
async def test_asyncpg_sends_and_gets(tidewire: ServerThread, oracle: str, type: str, value: Any) -> None:
    for dsn in (tidewire.dsn(), oracle):
        connection = await asyncpg.connect(dsn)
        try:
            assert await connection.fetchval(f"SELECT $1::{type}", value) == value
        finally:
            await connection.close()


@pytest.mark.slow
async def test_asyncpg_introspects_types(tidewire: ServerThread, oracle: str) -> None:
    """Its recursive query over pg_type runs for a type that it does not know: with `jit` set around it."""
    connection, other = await asyncpg.connect(tidewire.dsn()), await asyncpg.connect(oracle)
    try:
        assert await connection.fetchval("SELECT ARRAY[1, 2]") == [1, 2]
        introspected, _ = await connection._introspect_types([1007, 1700, 2211], 10)
        expected, _ = await other._introspect_types([1007, 1700, 2211], 10)
        assert {tuple(row) for row in introspected} == {tuple(row) for row in expected}
        assert len(introspected) == 5
        assert await connection.fetchval("SELECT current_setting('jit')") == "off"
        rows = await connection.fetch("SELECT oid, relname, relkind, relacl FROM pg_class WHERE relname = $1", "cheap")
        assert [tuple(row)[1:] for row in rows] == [("cheap", b"v", None)]
        assert await connection.fetchval("SELECT indkey FROM pg_index WHERE indexrelid = 'flights_pkey'::regclass") == [
            1
        ]
    finally:
        await connection.close()
        await other.close()


async def test_a_parameter_of_any_is_an_array_of_the_column_s_type(tidewire: ServerThread, oracle: str) -> None:
    kinds = "SELECT relname FROM pg_class WHERE relkind = ANY($1) AND relname IN ('flights', 'cheap') ORDER BY 1"
    oids = "SELECT nspname FROM pg_namespace WHERE oid = ANY($1)"
    names = "SELECT count(*) FROM pg_class c WHERE NOT c.relname <> ALL($1)"
    for dsn in (tidewire.dsn(), oracle):
        connection = await asyncpg.connect(dsn)
        try:
            assert [row[0] for row in await connection.fetch(kinds, [b"r", b"v"])] == ["cheap", "flights"]
            assert [row[0] for row in await connection.fetch(kinds, [b"v"])] == ["cheap"]
            assert await connection.fetchval(oids, [11]) == "pg_catalog"
            assert await connection.fetchval(names, ["flights", "carriers"]) == 2
        finally:
            await connection.close()


PARAMETERS = """
    SELECT enumlabel FROM pg_enum WHERE enumtypid = $1 ORDER BY enumsortorder
    SELECT typtype::text, typbasetype FROM pg_type WHERE oid=$1
    SELECT t.typname FROM pg_type t JOIN pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = $1 AND nspname = $2
    SELECT relname FROM pg_class WHERE relname = $1 AND relkind IN ('r', $2) LIMIT $3 OFFSET $4
    SELECT 1 FROM pg_attribute WHERE attrelid IN ($1, $2) AND $3 < attnum AND attisdropped = $4
    SELECT nspname FROM pg_namespace WHERE NOT (oid <> $1) AND (($2)) = nspname
    SELECT relpages FROM pg_class WHERE reltuples > $1 AND relnamespace IS DISTINCT FROM $2 AND oid BETWEEN $3 AND $4
    SELECT $1 = oid FROM pg_class
"""


async def test_parameters_have_the_types_of_what_they_are_compared_with(tidewire: ServerThread, oracle: str) -> None:
    """pgx, tokio-postgres and SQLx encode the values for the types that the server reports."""
    ours, theirs = await asyncpg.connect(tidewire.dsn()), await asyncpg.connect(oracle)
    try:
        for query in filter(None, map(str.strip, PARAMETERS.splitlines())):
            described = [(await each.prepare(query)).get_parameters() for each in (ours, theirs)]
            assert (query, described[0]) == (query, described[1])
    finally:
        await ours.close()
        await theirs.close()


class Oid(int):
    """A parameter that the client declares to be an oid, which has four bytes."""


class _OidDumper(psycopg.adapt.Dumper):
    oid, format = 26, psycopg.pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return struct.pack("!I", obj)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT nspname FROM pg_namespace WHERE oid = %b",
        "SELECT count(*) FROM pg_class WHERE relname = 'flights' AND oid > %b",
        "SELECT %b::bigint AS n",
    ],
)
def test_declared_parameters_of_type_oid(tidewire: ServerThread, oracle: str, query: str) -> None:
    """SQLx declares the types of parameters."""
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn) as connection:
            connection.adapters.register_dumper(Oid, _OidDumper)
            answers.append(connection.execute(query.encode(), [Oid(11)]).fetchall())
    assert answers[0] == answers[1]


REPLACED = (
    "SELECT regexp_replace(relname, '^f(l)', 'x\\1'), regexp_replace(relname, 'A', '-', 'gi'), "
    "regexp_replace(relname, 'g.*$', '') FROM pg_class WHERE relname = 'flights'"
)


def test_information_schema_lists_columns_in_their_order(tidewire: ServerThread) -> None:
    """Tools such as Piccolo read them without ORDER BY."""
    with psycopg.connect(tidewire.dsn()) as connection:
        connection.execute(
            "CREATE TABLE listed (z serial, y text DEFAULT 'a' UNIQUE, x date DEFAULT current_date, w int DEFAULT 0, "
            "v bool, u text, t int, s int, r int, q int)"
        )
        names = connection.execute(
            "SELECT column_name, column_default, is_nullable, table_name, data_type "
            "FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'listed'"
        ).fetchall()
        assert "".join(name for name, *_ in names) == "zyxwvutsrq"
        connection.rollback()


def test_regexp_replace_over_catalogs(tidewire: ServerThread, oracle: str) -> None:
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn) as connection:
            assert connection.execute(REPLACED).fetchone() == ("xlights", "flights", "fli"), dsn


# -- SQLAlchemy -----------------------------------------------------------------------------------------------------


def _reflected(inspector: Any) -> list[Any]:
    """What SQLAlchemy finds; types by their SQL."""
    found: list[Any] = [sorted(inspector.get_table_names()), inspector.get_view_names()]
    found.append([inspector.get_materialized_view_names(), inspector.has_table("cheap"), inspector.has_table("none")])
    for table in ("flights", "carriers", "cheap", "per_carrier"):
        found.append([{**column, "type": str(column["type"])} for column in inspector.get_columns(table)])
        found.append([inspector.get_pk_constraint(table), inspector.get_unique_constraints(table)])
        found.append([inspector.get_foreign_keys(table), inspector.get_check_constraints(table)])
        found.append([i for i in inspector.get_indexes(table) if i["name"] != "flights_origin_id_idx"])
    found.append([inspector.get_foreign_keys("legs", schema="s2"), inspector.get_foreign_keys("flights")])
    found.append([inspector.get_enums(), inspector.get_domains(), inspector.get_sequence_names()])
    return found


@pytest.mark.slow
def test_sqlalchemy_reflects(tidewire: ServerThread, oracle: str) -> None:
    import sqlalchemy

    answers = []
    for dsn in (tidewire.dsn(), oracle):
        url = dsn.replace("postgresql://", "postgresql+psycopg://")
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            answers.append(_reflected(sqlalchemy.inspect(connection)))
            metadata = sqlalchemy.MetaData()
            metadata.reflect(connection, views=True)
            assert sorted(metadata.tables) == ["carriers", "cheap", "flights", "per_carrier"]
        engine.dispose()
    assert answers[0] == answers[1]


@pytest.mark.long
async def test_sqlalchemy_reflects_through_asyncpg(tidewire: ServerThread, oracle: str) -> None:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import create_async_engine

    answers = []
    for dsn in (tidewire.dsn(), oracle):
        engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as connection:
            found = await connection.run_sync(lambda sync: _reflected(sqlalchemy.inspect(sync)))
            answers.append(found)
        await engine.dispose()
    assert answers[0] == answers[1]
