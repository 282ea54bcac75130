"""Statements that tools send: VACUUM, REINDEX, storage parameters, options of indexes, ALTER TABLE of views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_write import done


@pytest.fixture
def theirs(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with own_schema(postgres, "tools") as connection:
        yield connection


def answer(connection: psycopg.Connection[Any], sql: str) -> tuple[str | None, Any]:
    """Returns the command tag and the rows, or the SQLSTATE and the message of the error."""
    try:
        cursor = connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    return cursor.statusmessage, cursor.fetchall() if cursor.description else None


def test_they_are_answered_as_by_postgresql(theirs: psycopg.Connection[Any], passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in (
            "CREATE TABLE t (a int, b text) WITH (fillfactor = 70, autovacuum_enabled = false)",
            "CREATE TABLE u (a int) WITH (fillfactor = 70, nonsense = 1)",
            "CREATE INDEX i ON t (b text_pattern_ops, a) WITH (fillfactor = 100)",
            "VACUUM t",
            "VACUUM (VERBOSE false, ANALYZE) t (a, b), t",
            "VACUUM FULL ANALYZE t",
            "VACUUM nowhere",
            "ANALYZE t (a)",
            "ANALYZE nowhere",
            "BEGIN",
            "ANALYZE t",
            "VACUUM t",
            "ROLLBACK",
            "CREATE VIEW v AS SELECT a FROM t",
            "ALTER TABLE v RENAME TO w",
            "ALTER TABLE i RENAME TO j",
            "ALTER TABLE IF EXISTS nowhere RENAME TO x",
            "ALTER TABLE nowhere RENAME TO x",
            "ALTER VIEW t RENAME TO x",
            "DROP VIEW w",
            "DROP INDEX j",
        ):
            assert done(ours, statement)[0] == done(theirs, statement)[0], statement


def test_altering_what_does_not_exist_has_postgresqls_notice(
    theirs: psycopg.Connection[Any], passing_server: ServerThread
) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        notices: dict[Any, list[str | None]] = {ours: [], theirs: []}
        for connection, found in notices.items():
            connection.add_notice_handler(lambda notice, found=found: found.append(notice.message_primary))
            for kind in ("TABLE", "VIEW", "INDEX", "SEQUENCE", "MATERIALIZED VIEW"):
                connection.execute(f"ALTER {kind} IF EXISTS nowhere RENAME TO x".encode())
                connection.execute(f"DROP {kind} IF EXISTS nowhere".encode())
        assert notices[ours] == notices[theirs]


def test_the_options_of_indexes_are_those_of_postgresql(
    theirs: psycopg.Connection[Any], passing_server: ServerThread
) -> None:
    definitions = (
        "SELECT replace(pg_get_indexdef(indexrelid), 'tools.', 'public.'), pg_get_indexdef(indexrelid, 1, true),"
        " nullif(pg_get_indexdef(indexrelid, 2, true), ''), indnatts, indnkeyatts, indkey,"
        " indoption, indclass, relam, relnatts, indisunique"
        " FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname LIKE 'i%' ORDER BY relname"
    )
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in (
            "CREATE TABLE t (a int PRIMARY KEY, b text, c varchar(9), d char(3), e int[], n cidr, o inet, "
            '"F g" int, j jsonb)',
            "CREATE VIEW v AS SELECT a FROM t",
            "CREATE INDEX CONCURRENTLY ON t (a)",
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS i1 ON t (a DESC NULLS LAST, b ASC NULLS FIRST, c DESC, d ASC)",
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS i1 ON t (a)",
            "CREATE UNIQUE INDEX CONCURRENTLY i2 ON t (b) INCLUDE (c, d)",
            'CREATE INDEX i3 ON t (a) INCLUDE ("F g")',
            "CREATE INDEX i4 ON t USING hash (b)",
            "CREATE INDEX i5 ON t USING btree (b text_pattern_ops, c varchar_pattern_ops, d bpchar_pattern_ops)",
            "CREATE INDEX i6 ON t (a int4_ops, b text_ops, c text_ops, c varchar_ops DESC, b bpchar_ops)",
            "CREATE INDEX x7 ON t (lower(b) text_pattern_ops DESC, (a + 1) int4_ops, e array_ops)",
            'CREATE INDEX x8 ON t (b COLLATE "C" text_pattern_ops)',
            "CREATE INDEX i9 ON t USING hash (c pg_catalog.varchar_pattern_ops)",
            "CREATE INDEX ia ON t (b pg_catalog.text_pattern_ops)",
            "CREATE INDEX x ON t USING hash (a, b)",
            "CREATE UNIQUE INDEX x ON t USING hash (a)",
            "CREATE INDEX x ON t USING hash (a) INCLUDE (b)",
            "CREATE INDEX x ON t USING hash (a DESC)",
            "CREATE INDEX x ON t USING hash (a NULLS FIRST)",
            "CREATE INDEX ig ON t USING gin (j)",
            "CREATE INDEX ih ON t USING gin (j jsonb_path_ops, e)",
            "CREATE INDEX ij ON t USING brin (a, b)",
            "CREATE INDEX ik ON t USING brin (a int4_minmax_multi_ops)",
            "CREATE INDEX il ON t USING spgist (b)",
            "CREATE INDEX im ON t (n)",
            "CREATE INDEX io ON t (n cidr_ops, o inet_ops)",
            "CREATE INDEX ip ON t (n inet_ops, o cidr_ops DESC)",
            "CREATE INDEX iq ON t USING hash (o cidr_ops)",
            "CREATE INDEX x ON t (o int4_ops)",
            "CREATE INDEX x ON t (a cidr_ops)",
            "CREATE INDEX x ON t USING gin (a)",
            "CREATE INDEX x ON t USING gist (b)",
            "CREATE INDEX x ON t USING spgist (b, c)",
            "CREATE INDEX x ON t USING gin (j) INCLUDE (a)",
            "CREATE INDEX x ON t USING brin (a DESC)",
            "CREATE UNIQUE INDEX x ON t USING gist (b)",
            "CREATE INDEX x ON t USING gin (j array_ops)",
            "CREATE INDEX x ON t USING nonsense (a)",
            "CREATE INDEX x ON t (a text_ops)",
            "CREATE INDEX x ON t (lower(b) int4_ops)",
            "CREATE INDEX x ON t (b gin_trgm_ops)",
            "CREATE INDEX x ON t (a) INCLUDE (z)",
            "CREATE INDEX x ON t (a desc asc)",
            f"CREATE INDEX x ON t ({', '.join(['a'] * 33)})",
            "BEGIN",
            "CREATE INDEX CONCURRENTLY x ON t (a)",
            "ROLLBACK",
            "BEGIN",
            "DROP INDEX CONCURRENTLY i1",
            "ROLLBACK",
            "BEGIN",
            "REINDEX TABLE t",
            "REINDEX INDEX i1",
            "REINDEX INDEX CONCURRENTLY i1",
            "ROLLBACK",
            "BEGIN",
            "REINDEX SCHEMA public",
            "ROLLBACK",
            "REINDEX INDEX CONCURRENTLY i1",
            "REINDEX INDEX t_pkey",
            "REINDEX INDEX t",
            "REINDEX INDEX nowhere",
            "REINDEX TABLE v",
            "REINDEX TABLE i1",
            "REINDEX TABLE nowhere",
            "REINDEX (VERBOSE off, CONCURRENTLY) TABLE t",
            "REINDEX (nonsense) TABLE t",
            "REINDEX SCHEMA nowhere",
            "REINDEX SCHEMA",
            "REINDEX DATABASE nowhere",
            "REINDEX nonsense",
            "DROP INDEX CONCURRENTLY i1, i2",
            "DROP INDEX CONCURRENTLY i1 CASCADE",
            "DROP INDEX CONCURRENTLY IF EXISTS nowhere",
            definitions,
            "ALTER TABLE t RENAME c TO cc",
            'ALTER TABLE t RENAME "F g" TO h',
            definitions,
            "DROP INDEX ig, ih",
            "ALTER TABLE t DROP COLUMN h",
            "ALTER TABLE t ALTER cc TYPE int USING 1",
            definitions,
            "DROP INDEX CONCURRENTLY i1",
            "INSERT INTO t (a, b, cc) VALUES (1, 'x', 'y'), (2, 'x', 'z')",
        ):
            assert answer(ours, statement) == answer(theirs, statement), statement


def test_refused_indexes_have_a_hint(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int, b text, j jsonb)")
        ours.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
        for statement, state, hint in (
            ("CREATE INDEX ON t (b gin_trgm_ops)", "42704", "Omit the operator class"),
            ("CREATE UNIQUE INDEX ON t ((j -> 'a'))", "0A000", "cast the value in a unique index"),
            ("CREATE UNIQUE INDEX ON m (a)", "42809", "Omit UNIQUE"),
            ('CREATE INDEX ON t (b COLLATE "de_DE")', "0A000", "compared by its bytes"),
        ):
            with pytest.raises(psycopg.Error) as error:
                ours.execute(statement.encode())
            assert error.value.sqlstate == state, statement
            assert hint in (error.value.diag.message_hint or ""), statement


def test_an_index_of_another_method_says_what_it_finds(dsn: str) -> None:
    """It finds rows by equal keys, and the rows of other searches are right, too."""
    with psycopg.connect(dsn, autocommit=True) as ours:
        notices: list[str | None] = []
        ours.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        ours.execute("CREATE TABLE t (j jsonb, e int[], a int)")
        ours.execute("CREATE INDEX ON t USING gin (j); CREATE INDEX ON t USING brin (a)")
        methods = ("gin", "brin")
        assert notices == [f"index of access method {method} finds rows by equal keys only" for method in methods]
        ours.execute("""INSERT INTO t VALUES ('{"k": [1, 2]}', '{1}', 1), ('{"k": 3}', '{1, 2}', 2)""")
        assert ours.execute("""SELECT a FROM t WHERE j @> '{"k": [2]}'""").fetchall() == [(1,)]
        assert ours.execute("SELECT a FROM t WHERE a = 2").fetchall() == [(2,)]
        assert ours.execute("SELECT a FROM t WHERE a < 2").fetchall() == [(1,)]


def test_definitions_of_indexes_can_be_executed_again(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int, b text)")
        for definition in (
            "INDEX i ON t (b text_pattern_ops DESC, a NULLS FIRST) INCLUDE (a)",
            "UNIQUE INDEX i ON t (lower(b), ((a + 1))) NULLS NOT DISTINCT WHERE ((b)) = 'x'",
        ):
            ours.execute(f"CREATE {definition}".encode())
            shown = ours.execute("SHOW CREATE INDEX i").fetchone()
            listed = ours.execute("SELECT pg_get_indexdef('i'::regclass)").fetchone()
            assert shown is not None
            assert listed is not None
            for text in (shown[1], listed[0]):
                ours.execute("DROP INDEX i")
                ours.execute(text)
                assert ours.execute("SELECT pg_get_indexdef('i'::regclass)").fetchone() == listed
            ours.execute("DROP INDEX i")
        assert listed[0].endswith("(lower(b), (a + 1)) NULLS NOT DISTINCT WHERE (((b)) = 'x')")


def test_collations_that_compare_bytes_are_those_of_postgresql(
    theirs: psycopg.Connection[Any], passing_server: ServerThread
) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in (
            'CREATE TABLE t (a text COLLATE "C" NOT NULL, b varchar(9) NOT NULL COLLATE pg_catalog."POSIX",'
            ' c char(3) COLLATE "default" UNIQUE, d text[] COLLATE "C")',
            "CREATE DOMAIN word AS text COLLATE pg_catalog.\"C\" CHECK (VALUE > 'a')",
            "CREATE DOMAIN name2 AS varchar(3) DEFAULT 'b' COLLATE \"C\" NOT NULL",
            'CREATE TABLE u (a word COLLATE "C", b name2)',
            "ALTER TABLE t ADD e text COLLATE ucs_basic DEFAULT 'x', ALTER b TYPE text COLLATE \"C\"",
            'CREATE INDEX ON t (a COLLATE "C", b COLLATE pg_catalog."POSIX" DESC)',
            'CREATE TABLE x (a text COLLATE "C" COLLATE "C")',
            'CREATE TABLE x (a int COLLATE "C")',
            'CREATE DOMAIN x AS int COLLATE "C"',
            "INSERT INTO u VALUES ('A', 'b')",
        ):
            assert answer(ours, statement) == answer(theirs, statement), statement
        for statement in (
            'CREATE TABLE x (a text COLLATE "en_US")',
            'CREATE DOMAIN x AS text COLLATE "und-x-icu"',
            'ALTER TABLE t ALTER a TYPE text COLLATE other."C"',
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"collation .* is not supported") as error:
                ours.execute(statement.encode())
            assert "compared by its bytes" in str(error.value.diag.message_hint)


def test_extensions(theirs: psycopg.Connection[Any], passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        notices: list[str | None] = []
        ours.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        for statement in (
            "CREATE EXTENSION IF NOT EXISTS plpgsql WITH SCHEMA pg_catalog",
            "CREATE EXTENSION plpgsql",
            "CREATE EXTENSION IF NOT EXISTS nowhere SCHEMA public VERSION '1.0' CASCADE",
            "CREATE EXTENSION nowhere NONSENSE",
            "COMMENT ON EXTENSION plpgsql IS 'x'",
            "COMMENT ON EXTENSION nowhere IS 'x'",
            "COMMENT ON EXTENSION plpgsql",
        ):
            assert answer(ours, statement) == answer(theirs, statement), statement
        assert notices == ['extension "plpgsql" already exists, skipping']
        ours.execute('CREATE EXTENSION IF NOT EXISTS "uuid-ossp"')
        ours.execute("CREATE EXTENSION IF NOT EXISTS pgcrypto WITH SCHEMA public")
        ours.execute("COMMENT ON EXTENSION pgcrypto IS 'cryptographic functions'")
        assert notices[1:] == [f'extension "{name}" already exists, skipping' for name in ("uuid-ossp", "pgcrypto")]
        names = [name for (name,) in ours.execute("SELECT extname FROM pg_extension")]
        assert "plpgsql" in names
        for name in names:  # ActiveRecord's schema dumps name all of them
            ours.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(name)))
        ours.execute("CREATE TABLE with_uuids (id uuid DEFAULT uuid_generate_v4(), n int)")
        ours.execute("INSERT INTO with_uuids (n) VALUES (1), (2)")
        ids = ours.execute("SELECT id FROM with_uuids").fetchall()
        assert len({id for (id,) in ids}) == 2
        assert {id.version for (id,) in ids} == {4}
        for name, hint in (("pg_trgm", "read all rows"), ("nowhere", "cannot load")):
            with pytest.raises(psycopg.errors.FeatureNotSupported) as error:
                ours.execute(f"CREATE EXTENSION {name}".encode())
            assert hint in str(error.value.diag.message_hint)


def test_there_are_no_prepared_transactions(theirs: psycopg.Connection[Any], passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in (
            "SHOW max_prepared_transactions",
            "SELECT setting::int FROM pg_settings WHERE name = 'max_prepared_transactions'",
            "SELECT current_setting('max_prepared_transactions')",
        ):
            assert answer(ours, statement) == answer(theirs, statement), statement
