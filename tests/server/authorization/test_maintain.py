"""The privileges TRIGGER and MAINTAIN, compared with PostgreSQL 18: version 16 has no MAINTAIN."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_postgres import PostgresServer, binaries
from tests.fix_server import ServerThread
from tests.server.authorization.test_roles import Sessions

SCRIPT = """
boss: CREATE TABLE t (a int PRIMARY KEY, b int)
boss: CREATE INDEX i ON t (b)
boss: CREATE TABLE u (a int)
boss: CREATE VIEW v AS SELECT a FROM u
boss: GRANT ALL ON u TO bob
boss: GRANT TRIGGER ON t TO bob WITH GRANT OPTION
bob: GRANT TRIGGER, MAINTAIN ON t TO ann
boss: SELECT has_table_privilege('ann', 't', 'TRIGGER'), has_table_privilege('ann', 't', 'MAINTAIN')
boss: SELECT has_table_privilege('ann', 't', 'MAINTAIN WITH GRANT OPTION')
boss: REVOKE GRANT OPTION FOR TRIGGER ON t FROM bob CASCADE
boss: GRANT MAINTAIN (a) ON t TO ann
boss: GRANT TRIGGER (a) ON t TO ann
boss: CREATE SEQUENCE n
boss: GRANT MAINTAIN ON SEQUENCE n TO ann
boss: GRANT MAINTAIN ON SCHEMA public TO ann
ann: VACUUM t
ann: ANALYZE t, u
ann: VACUUM (ANALYZE) t
ann: ANALYZE v
ann: REINDEX TABLE t
ann: REINDEX INDEX i
ann: REINDEX INDEX t_pkey
ann: REINDEX SCHEMA public
boss: GRANT MAINTAIN ON t TO ann
ann: VACUUM t
ann: ANALYZE t (a), u
ann: REINDEX TABLE t
ann: REINDEX INDEX i
ann: REINDEX INDEX t_pkey
ann: SELECT a FROM t
ann: BEGIN
ann: LOCK TABLE t
ann: LOCK TABLE t IN ACCESS SHARE MODE
ann: ROLLBACK
boss: ANALYZE v
boss: VACUUM v
boss: ANALYZE pg_class
boss: REVOKE MAINTAIN ON t FROM ann
boss: ALTER DEFAULT PRIVILEGES GRANT TRIGGER, MAINTAIN ON TABLES TO ann
boss: CREATE TABLE w (a int)
ann: VACUUM w
boss: ALTER DEFAULT PRIVILEGES GRANT MAINTAIN ON SEQUENCES TO ann
boss: ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM ann
boss: ALTER TABLE w OWNER TO ann
ann: REVOKE MAINTAIN ON w FROM ann
ann: ANALYZE w
ann: REINDEX TABLE w
ann: GRANT ALL ON w TO ann
ann: ANALYZE w
"""
MODES = (
    *("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE"),
    *("SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"),
)
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN")
SHOWN = (
    "SELECT relname, array_to_string(relacl, ' ') FROM pg_class WHERE relname IN ('t', 'u', 'v', 'w', 'n')",
    "SELECT defaclobjtype, array_to_string(defaclacl, ' ') FROM pg_default_acl",
    "SELECT grantee, table_name, privilege_type, is_grantable FROM information_schema.table_privileges "
    "WHERE table_name IN ('t', 'u', 'v', 'w')",
)


@pytest.fixture(scope="module")
def newer_postgres() -> Iterator[str]:
    server = PostgresServer(programs=binaries().parents[1] / "pginstall18" / "bin")
    yield server.dsn
    server.stop()


@pytest.fixture
def sides(newer_postgres: str, passing_server: ServerThread) -> Iterator[tuple[Sessions, Sessions]]:
    """Sessions of Tidewire and of PostgreSQL."""
    with psycopg.connect(newer_postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS maintained")
        connection.execute("CREATE DATABASE maintained")
    sides = Sessions(passing_server.dsn()), Sessions(f"{newer_postgres.rpartition('/')[0]}/maintained")
    yield sides
    for side in sides:
        side.close()


def outcomes(sides: tuple[Sessions, Sessions], user: str, statement: str) -> tuple[str, str]:
    ours, theirs = (side.outcome(user, statement) for side in sides)
    return ours, re.sub(r"\bpostgres\b", "materialize", theirs)


@pytest.mark.long
def test_they_have_postgresqls_effects(sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        boss = side["boss"]
        boss.add_notice_handler(lambda d, side=side: side.notices.append(f"{d.sqlstate} {d.message_primary}"))
        _ = side["ann"], side["bob"]
    for line in SCRIPT.strip().splitlines():
        user, _, statement = line.partition(": ")
        ours, theirs = outcomes(sides, user, statement)
        assert ours == theirs, line
        for query in SHOWN:
            ours, theirs = outcomes(sides, "boss", query)
            assert ours == theirs, f"{line}\n{query}"


def test_each_mode_of_a_lock_is_permitted_by_postgresqls_privileges(sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        _ = side["ann"]
        side["boss"].execute("CREATE TABLE t (a int)")
    for privilege in PRIVILEGES:
        for side in sides:
            side["boss"].execute(f"REVOKE ALL ON t FROM ann; GRANT {privilege} ON t TO ann".encode())
        for mode in MODES:
            for side in sides:
                side["ann"].execute("BEGIN")
            ours, theirs = outcomes(sides, "ann", f"LOCK TABLE t IN {mode} MODE")
            assert ours == theirs, (privilege, mode)
            for side in sides:
                side["ann"].execute("ROLLBACK")


def test_only_the_owner_reindexes_a_database(sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        assert side.outcome("ann", "REINDEX DATABASE") == f"42501 must be owner of database {side.database}"
        assert side.outcome("ann", "REINDEX SYSTEM") == f"42501 must be owner of database {side.database}"
