"""The queries that BI and admin tools send when they connect and browse, compared with PostgreSQL.

`browsing.sql` has the queries of Power BI, Grafana, Metabase, DBeaver, DataGrip, Tableau, Rails and migration tools,
over the objects of `browsing_schema.sql`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.server.pg_catalog.test_pg_catalog import same_names, served
from tests.server.pg_catalog.test_tools import answer, statements


@pytest.fixture(scope="module")
def tidewire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    yield from served(tmp_path_factory.mktemp("data"), [text for _, text in statements("browsing_schema.sql")])


@pytest.fixture(scope="module")
def oracle() -> Iterator[str]:
    yield from same_names(text for _, text in statements("browsing_schema.sql"))


def _tools() -> dict[str, list[str]]:
    """The queries of each tool. A test for each query would take longer."""
    found: dict[str, list[str]] = {}
    for tool, query in statements("browsing.sql"):
        found.setdefault(tool, []).append(query)
    return found


XID, OID = 28, 26  # Tidewire has no type xid


@pytest.mark.parametrize("tool", _tools())
def test_queries_of_a_tool(tidewire: ServerThread, oracle: str, tool: str) -> None:
    for query in _tools()[tool]:
        ours, (columns, rows) = answer(tidewire.dsn(), query), answer(oracle, query)
        columns = [(name, OID if type == XID else type) for name, type in columns]
        assert (query, ours) == (query, (columns, rows))


DEFAULTS = (
    "CREATE SCHEMA defaults",
    "CREATE TYPE defaults.level AS ENUM ('low', 'high')",
    "CREATE DOMAIN defaults.label AS varchar(9) DEFAULT 'la''bel'",
    r"""CREATE TABLE defaults.t (
        a text DEFAULT 'x', b varchar(5) DEFAULT 'it''s', c char(3) DEFAULT 'c', d int DEFAULT '5', e int DEFAULT 7,
        f boolean DEFAULT 'yes', g boolean DEFAULT false, h jsonb DEFAULT '{}', i text[] DEFAULT '{}',
        j date DEFAULT '2024-01-31', k timestamptz DEFAULT now(), l defaults.level DEFAULT 'low',
        m text DEFAULT E'a\\b', n text DEFAULT 'x'::text, o numeric(6,2) DEFAULT '12.50',
        p uuid DEFAULT gen_random_uuid(), q text DEFAULT '', r interval DEFAULT '1 day', s int DEFAULT '-3',
        t defaults.label DEFAULT 'own', u text DEFAULT $$dollar$$, v text, w boolean DEFAULT TRUE
    )""",
)


def test_defaults_have_the_text_that_orms_read(tidewire: ServerThread, oracle: str) -> None:
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in DEFAULTS:
                connection.execute(statement.encode())
        queries = (
            "SELECT adnum, pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'defaults.t'::regclass "
            "ORDER BY 1",
            "SELECT column_name, column_default FROM information_schema.columns WHERE table_schema = 'defaults' "
            "ORDER BY ordinal_position",
            "SELECT typdefault FROM pg_type WHERE typname = 'label'",
        )
        answers.append([answer(dsn, query)[1] for query in queries])
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP SCHEMA defaults CASCADE")
    for ours, theirs in zip(*answers, strict=True):
        assert set(ours) ^ set(theirs) == set()


SESSIONS = {
    "prepared statements": (
        "PREPARE first AS SELECT $1::int AS a, true AS b",
        "PREPARE second(text, numeric) AS INSERT INTO customers (name) VALUES ($1) RETURNING id",
        "PREPARE third AS DELETE FROM customers",
        "SELECT name, statement, parameter_types::text[], result_types::text[], from_sql FROM pg_prepared_statements "
        "ORDER BY name",
        "SELECT count(*) FROM pg_prepared_statements WHERE prepare_time > now() - interval '1 minute'",
        "DEALLOCATE second",
        "SELECT name FROM pg_prepared_statements ORDER BY name",
        "DEALLOCATE ALL",
        "SELECT count(*) FROM pg_prepared_statements",
    ),
    "cursors": (
        "BEGIN",
        "DECLARE plain SCROLL CURSOR FOR SELECT 1",
        "DECLARE held BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT relname FROM pg_class",
        "SELECT name, statement, is_holdable, is_binary, is_scrollable FROM pg_cursors ORDER BY name",
        "SELECT count(*) FROM pg_cursors WHERE creation_time >= now()",
        "CLOSE plain",
        "SELECT name FROM pg_cursors",
        "COMMIT",
        "SELECT name FROM pg_cursors",
        "CLOSE held",
        "SELECT count(*) FROM pg_cursors",
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_what_a_session_has(tidewire: ServerThread, oracle: str, name: str) -> None:
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursors = [connection.execute(statement.encode()) for statement in SESSIONS[name]]
            answers.append([cursor.fetchall() for cursor in cursors if cursor.description])
    assert answers[0] == answers[1]


def test_statements_that_a_driver_prepares(tidewire: ServerThread, oracle: str) -> None:
    answers = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SELECT %s::int + 1", (1,), prepare=True)
            query = "SELECT statement, parameter_types::text[], from_sql FROM pg_prepared_statements"
            answers.append(connection.execute(query).fetchall())
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'lower(nope)'::regprocedure",
        "SELECT 'lower(int)'::regprocedure",
        "SELECT 'lower'::regprocedure",
        "SELECT (SELECT 'nope')::regclass",
        "SELECT 'nope.t'::regclass",
        "SELECT parse_ident('a.')",
        "SELECT parse_ident('.a')",
        "SELECT parse_ident('1a')",
        "SELECT parse_ident(nspname || '.') FROM pg_namespace WHERE nspname = 'public'",
        "SELECT pg_relation_size('nope')",
        "SELECT pg_relation_size('orders', 'nope')",
        "SELECT pg_database_size('nope')",
        "SELECT pg_tablespace_size('nope')",
        "SELECT pg_get_viewdef('nope')",
        "SELECT pg_get_serial_sequence('nope', 'id')",
        "SELECT pg_get_serial_sequence('customers', 'nope')",
        "SELECT has_type_privilege('nope', 'USAGE')",
        "SELECT has_column_privilege('orders', attname, 'SELECT') FROM pg_attribute WHERE attrelid = 1259",
        "SELECT nope FROM pg_class",
        "SELECT c.nope FROM pg_class c",
        "SELECT nope.oid FROM pg_class",
        "SELECT oid FROM pg_class, pg_namespace",
        "SELECT relkind FROM pg_class GROUP BY nope",
        "SELECT relname FROM pg_class WHERE count(*) > 1",
        "SELECT max(count(*)) FROM pg_class",
        "SELECT oid IN (SELECT oid, relname FROM pg_class) FROM pg_class",
        "SELECT (SELECT oid FROM pg_class WHERE oid IN (1259, 1247)) FROM pg_namespace",
        "SELECT 1 / 0 FROM pg_namespace WHERE nspname = 'public'",
        "SELECT 1 % (typlen - typlen) FROM pg_type WHERE oid = 23",
        "SELECT attnum + 2147483647 FROM pg_attribute WHERE attrelid = 1259 AND attname = 'relname'",
        "SELECT typlen::int + 2147483647 FROM pg_type WHERE oid = 23",
        "SELECT nspname::int FROM pg_namespace WHERE nspname = 'public'",
        "SELECT nspname::numeric FROM pg_namespace WHERE nspname = 'public'",
        "SELECT nspname::date FROM pg_namespace WHERE nspname = 'public'",
        "SELECT sum(reloptions) FROM pg_class",
        "SELECT typlen + false FROM pg_type",
    ],
)
def test_errors(tidewire: ServerThread, oracle: str, query: str) -> None:
    errors = []
    for dsn in (tidewire.dsn(), oracle):
        with psycopg.connect(dsn, autocommit=True) as connection, pytest.raises(psycopg.Error) as raised:
            connection.execute(query.encode())
        errors.append((raised.value.sqlstate, raised.value.diag.message_primary))
    assert errors[0] == errors[1]


EXPLAINED = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1"


def test_explain_of_a_query_over_system_catalogs(tidewire: ServerThread) -> None:
    with psycopg.connect(tidewire.dsn(), autocommit=True) as connection:
        cursor = psycopg.RawCursor(connection)
        lines = [line for (line,) in cursor.execute(f"EXPLAIN {EXPLAINED}".encode(), (1259,)).fetchall()]
        assert lines == [
            "Reads: pg_catalog.pg_class, pg_catalog.pg_namespace",
            "Gives: nspname name, relname name",
            "Plan:",
            "  Catalog Query",
            "Runs: in the catalog engine",
        ]
        analyzed = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {EXPLAINED}".encode(), (1259,)).fetchone()
        assert analyzed is not None
        assert analyzed[0][0]["Plan"] == {"Node Type": "Catalog Query", "Actual Rows": 1}
        assert analyzed[0][0]["Execution Time"] > 0
        connection.execute("PREPARE explained AS SELECT relname FROM pg_class WHERE relname = $1")
        assert len(connection.execute("EXPLAIN ANALYZE EXECUTE explained('pg_class')").fetchall()) == 7
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match="EXPLAIN RAW PLAN of a query over system catalogs"
        ):
            connection.execute("EXPLAIN RAW PLAN FOR SELECT relname FROM pg_class")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("EXPLAIN SELECT * FROM pg_class, nothing")
