"""Roles and privileges, with clients of several roles. Statements that PostgreSQL has are compared with a real one."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from protocol.pgwire.errors import PgError
from server.authorization import privileges
from tests.fix_server import ServerThread

Connection = psycopg.Connection[tuple[Any, ...]]


class Sessions:
    """Sessions of several roles in one database. `boss` is a superuser; any other name is a role, which is created."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.database = dsn.rpartition("/")[2]
        self._open: dict[str, Connection] = {"boss": psycopg.connect(dsn, autocommit=True)}
        self.notices: list[str] = []
        self._roles: list[str] = []

    def __getitem__(self, name: str) -> Connection:
        if name not in self._open:
            self.user(name)
            self._open[name] = psycopg.connect(self.dsn, user=name, autocommit=True)
            self._open[name].add_notice_handler(lambda d: self.notices.append(f"{d.sqlstate} {d.message_primary}"))
        return self._open[name]

    def user(self, name: str) -> None:
        self.role(f"CREATE USER {name}", name)

    def role(self, statement: str, name: str) -> None:
        """Executes a statement that creates a role. `close` drops the role."""
        self["boss"].execute(statement)  # type: ignore[arg-type]
        self._roles.append(name)

    def outcome(self, name: str, statement: str) -> str:
        """Returns the rows or the tag, or SQLSTATE and message, after the warnings."""
        connection = self[name]
        self.notices.clear()
        try:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            outcome = (
                str(sorted(cursor.fetchall(), key=str)) if cursor.description is not None else str(cursor.statusmessage)
            )
        except psycopg.Error as error:
            outcome = f"{error.sqlstate} {error.diag.message_primary}"
            if error.diag.message_detail is not None:
                outcome += f" ({'; '.join(sorted(error.diag.message_detail.splitlines()))})"
        return "; ".join([*self.notices, outcome])

    def close(self) -> None:
        boss = self["boss"]
        boss.execute("RESET ROLE")
        present = {
            name for (name,) in boss.execute("SELECT rolname FROM pg_roles" if self._is_postgres() else "SHOW ROLES")
        }
        for name in [role for role in self._roles if role in present]:
            boss.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        for name in [role for role in self._roles if role in present]:
            boss.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
        for connection in self._open.values():
            connection.close()

    def _is_postgres(self) -> bool:
        return "Tidewire" not in str(self["boss"].execute("SELECT version()").fetchall())


@pytest.fixture
def sessions(dsn: str) -> Iterator[Sessions]:
    sessions = Sessions(dsn)
    yield sessions
    sessions.close()


_databases = itertools.count(1)


@pytest.fixture
def oracle(postgres: str) -> Iterator[Sessions]:
    """The same sessions in a PostgreSQL database."""
    name = f"roles_{next(_databases)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        sessions = Sessions(f"{postgres.rpartition('/')[0]}/{name}")
        yield sessions
        sessions.close()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


SCRIPTS = {
    "tables": """
boss: CREATE TABLE t (a int, b text)
boss: INSERT INTO t VALUES (1, 'x'), (2, 'y')
ann: SELECT * FROM t
ann: SELECT count(*) FROM t
ann: INSERT INTO t VALUES (3, 'z')
ann: UPDATE t SET a = 1
ann: DELETE FROM t
ann: TRUNCATE t
ann: COPY t FROM STDIN
ann: DROP TABLE t
ann: ALTER TABLE t RENAME TO u
ann: ALTER TABLE t OWNER TO ann
ann: CREATE INDEX i ON t (a)
ann: GRANT SELECT ON t TO ann
boss: GRANT SELECT ON t TO ann
ann: SELECT * FROM t
ann: SELECT count(*) FROM t
ann: SELECT a FROM t AS OTHER WHERE a = 1
ann: INSERT INTO t VALUES (3, 'z')
ann: GRANT SELECT ON t TO bob
bob: SELECT * FROM t
boss: GRANT INSERT ON TABLE t TO bob
bob: INSERT INTO t VALUES (3, 'z')
bob: INSERT INTO t VALUES (4, 'z') RETURNING a
bob: INSERT INTO t SELECT a + 10, b FROM t
bob: SELECT a FROM t
boss: GRANT UPDATE ON t TO bob
bob: UPDATE t SET b = 'w'
bob: UPDATE t SET a = a + 1
bob: UPDATE t SET b = 'w' WHERE a = 1
boss: GRANT DELETE ON t TO bob
bob: DELETE FROM t WHERE a = 1
bob: DELETE FROM t
boss: GRANT SELECT ON t TO PUBLIC
bob: UPDATE t SET a = a + 1
bob: INSERT INTO t SELECT 1, 'again'
bob: SELECT * FROM t
boss: REVOKE SELECT ON t FROM PUBLIC
bob: SELECT * FROM t
ann: SELECT * FROM t
boss: REVOKE ALL ON t FROM ann, bob
ann: SELECT * FROM t
bob: DELETE FROM t
boss: GRANT TRUNCATE ON t TO ann
ann: TRUNCATE t
""",
    "views": """
boss: CREATE TABLE t (a int)
boss: INSERT INTO t VALUES (1), (2)
boss: CREATE VIEW v AS SELECT a FROM t WHERE a > 1
ann: SELECT * FROM v
boss: GRANT SELECT ON v TO ann
ann: SELECT * FROM v
ann: SELECT * FROM t
boss: CREATE SCHEMA s
boss: GRANT USAGE, CREATE ON SCHEMA s TO ann
ann: CREATE VIEW s.w AS SELECT a FROM t
ann: SELECT * FROM s.w
boss: SELECT * FROM s.w
boss: GRANT SELECT ON t TO ann
ann: SELECT * FROM s.w
boss: SELECT * FROM s.w
boss: REVOKE SELECT ON t FROM ann
boss: SELECT * FROM s.w
ann: CREATE MATERIALIZED VIEW s.m AS SELECT a FROM t
ann: CREATE OR REPLACE VIEW v AS SELECT 1 AS a
ann: DROP VIEW v
boss: DROP VIEW v
boss: CREATE MATERIALIZED VIEW mv AS SELECT a FROM t
ann: SELECT * FROM mv
ann: DROP MATERIALIZED VIEW mv
ann: ALTER MATERIALIZED VIEW mv RENAME TO other
boss: GRANT SELECT ON mv TO ann
ann: SELECT * FROM mv
""",
    "schemas": """
ann: CREATE TABLE t (a int)
ann: CREATE SCHEMA s
boss: CREATE SCHEMA s
boss: CREATE TABLE s.t (a int)
boss: GRANT SELECT ON s.t TO ann
ann: SELECT * FROM s.t
ann: SELECT * FROM t
ann: SET search_path = s, public
ann: SELECT * FROM t
ann: CREATE TABLE u (a int)
boss: GRANT USAGE ON SCHEMA s TO ann
ann: SELECT * FROM t
ann: SELECT * FROM s.t
ann: CREATE TABLE s.u (a int)
ann: DROP SCHEMA s
ann: ALTER SCHEMA s RENAME TO r
boss: GRANT CREATE ON SCHEMA s TO ann
ann: CREATE TABLE s.u (a int)
boss: DROP ROLE ann
ann: INSERT INTO s.u VALUES (1)
ann: SELECT * FROM s.u
bob: SELECT * FROM s.u
ann: GRANT SELECT ON s.u TO bob
bob: SELECT * FROM s.u
boss: ALTER SCHEMA s OWNER TO bob
bob: DROP TABLE s.u
boss: SELECT has_schema_privilege('ann', 's', 'USAGE')
boss: GRANT INSERT ON SCHEMA s TO ann
boss: GRANT USAGE ON TABLE s.t TO ann
boss: GRANT frobnicate ON TABLE s.t TO ann
boss: GRANT SELECT ON s.nothing TO ann
boss: GRANT SELECT ON s.t TO nobody_at_all
boss: GRANT USAGE ON SCHEMA nothing TO ann
boss: GRANT CREATE ON DATABASE nothing TO ann
boss: CREATE VIEW s.v AS SELECT 1 AS a
boss: REVOKE ALL ON ALL TABLES IN SCHEMA s FROM ann
boss: GRANT SELECT ON ALL TABLES IN SCHEMA s TO ann
ann: SELECT * FROM s.v
ann: SELECT * FROM s.t
""",
    "membership": """
boss: CREATE TABLE t (a int)
boss: CREATE ROLE readers
boss: GRANT SELECT ON t TO readers
ann: SELECT * FROM t
ann: SET ROLE readers
boss: GRANT readers TO ann
boss: GRANT readers TO ann
boss: GRANT ann TO readers
boss: GRANT readers TO readers
ann: SELECT * FROM t
ann: SET ROLE readers
ann: SELECT current_user, session_user, current_role
ann: SHOW role
ann: RESET ALL
ann: SHOW role
ann: SET ROLE NONE
ann: SELECT current_user, session_user
ann: BEGIN
ann: SET LOCAL ROLE readers
ann: SELECT current_user
ann: COMMIT
ann: SELECT current_user
ann: BEGIN
ann: SET ROLE readers
ann: ROLLBACK
ann: SELECT current_user
ann: SET ROLE nobody_at_all
ann: SET ROLE bob
ann: SELECT pg_has_role('ann', 'readers', 'MEMBER'), pg_has_role('bob', 'readers', 'MEMBER')
ann: SELECT pg_has_role('readers', 'USAGE'), has_table_privilege('t', 'INSERT, SELECT')
ann: SELECT has_table_privilege('t', 'SELECT'), has_table_privilege('bob', 't', 'select')
ann: SELECT has_table_privilege('nothing', 'SELECT')
ann: SELECT has_table_privilege('t', 'frobnicate')
ann: SELECT has_table_privilege('nobody_at_all', 't', 'SELECT')
boss: REVOKE readers FROM ann
boss: REVOKE readers FROM ann
ann: SELECT * FROM t
boss: ALTER ROLE ann NOINHERIT
boss: ALTER ROLE ann RENAME TO bob
boss: CREATE ROLE bob
boss: DROP ROLE nobody_at_all
boss: DROP ROLE IF EXISTS nobody_at_all
boss: DROP ROLE readers
boss: REVOKE ALL ON t FROM readers
boss: DROP ROLE readers
boss: DROP ROLE public
boss: CREATE ROLE public
boss: CREATE ROLE pg_something
boss: CREATE ROLE none
""",
    "ownership": """
boss: CREATE SCHEMA s
boss: CREATE TABLE s.t (a int)
boss: ALTER TABLE s.t OWNER TO ann
boss: ALTER TABLE s.t OWNER TO nobody_at_all
ann: SELECT * FROM s.t
boss: GRANT USAGE ON SCHEMA s TO ann, bob
ann: SELECT * FROM s.t
ann: GRANT INSERT ON s.t TO bob
bob: INSERT INTO s.t VALUES (1)
ann: ALTER TABLE s.t RENAME TO u
ann: ALTER TABLE s.t OWNER TO bob
ann: REVOKE SELECT ON s.t FROM ann
ann: SELECT * FROM s.t
ann: GRANT SELECT ON s.t TO ann
ann: SELECT * FROM s.t
bob: REASSIGN OWNED BY ann TO bob
bob: DROP OWNED BY ann
boss: REASSIGN OWNED BY ann TO bob
ann: SELECT * FROM s.t
bob: SELECT * FROM s.t
boss: DROP OWNED BY bob
boss: SELECT * FROM s.t
""",
    "server": """
ann: CREATE DATABASE d
ann: ALTER SYSTEM SET statement_timeout = '1s'
ann: ALTER SYSTEM RESET ALL
ann: SHOW is_superuser
boss: SHOW is_superuser
boss: SET ROLE ann
boss: SHOW is_superuser
boss: ALTER SYSTEM SET statement_timeout = '1s'
boss: RESET ROLE
boss: SHOW is_superuser
boss: ALTER ROLE nobody_at_all SUPERUSER
boss: ALTER ROLE ann SUPERUSER
ann: CREATE TABLE t (a int)
boss: ALTER ROLE ann NOSUPERUSER
ann: CREATE TABLE u (a int)
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_statements_have_postgresqls_outcomes(name: str, sessions: Sessions, oracle: Sessions) -> None:
    for user in ("ann", "bob"):
        _ = sessions[user], oracle[user]
    different = []
    for line in SCRIPTS[name].strip().splitlines():
        user, _, statement = line.partition(": ")
        ours, theirs = sessions.outcome(user, statement), oracle.outcome(user, statement)
        if theirs.startswith("SELECT ") and statement.startswith("CREATE MATERIALIZED VIEW"):
            theirs = "CREATE MATERIALIZED VIEW"  # PostgreSQL's tag is the number of rows
        theirs = theirs.replace('by role "postgres"', 'by role "materialize"')
        if ours != theirs.replace(oracle.database, sessions.database):
            different.append(f"{line}\n    ours   {ours}\n    theirs {theirs}")
    assert not different, "\n".join(different)


def refused(connection: Connection, statement: str, message: str, code: str = "42501") -> None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)  # type: ignore[arg-type]
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (code, message)
    connection.rollback()


# -- beyond PostgreSQL ----------------------------------------------------------------------------------------------


def test_a_shared_plan_does_not_bypass_privileges(sessions: Sessions) -> None:
    """Query strings and statements are planned once for all sessions, but privileges are checked for each execution."""
    boss, ann, bob = sessions["boss"], sessions["ann"], sessions["bob"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("INSERT INTO t VALUES (1)")
    boss.execute("GRANT SELECT ON t TO ann")
    for query in ("SELECT * FROM t", "SELECT a + 1 FROM t"):
        for _ in range(3):
            boss.execute(query)  # type: ignore[arg-type]
            ann.execute(query, prepare=True)  # type: ignore[arg-type]
            refused(bob, query, "permission denied for table t")
    boss.execute("CREATE SCHEMA s")
    boss.execute("CREATE TABLE s.t (a int)")
    for session in (boss, ann):
        session.execute("SET search_path = s, public")
    assert boss.execute("SELECT * FROM t").fetchall() == []
    assert ann.execute("SELECT * FROM t").fetchall() == [(1,)], "a schema that a role may not use is not searched"


def test_a_prepared_statement_is_refused_after_a_revoke(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("GRANT SELECT, INSERT ON t TO ann")
    ann.execute("PREPARE p AS SELECT * FROM t")
    ann.execute("PREPARE q AS INSERT INTO t VALUES ($1)")
    ann.execute("EXECUTE q (1)")
    assert ann.execute("EXECUTE p").fetchall() == [(1,)]
    assert ann.execute("SELECT a FROM t WHERE a = %s", (1,), prepare=True).fetchall() == [(1,)]
    boss.execute("REVOKE ALL ON t FROM ann")
    refused(ann, "EXECUTE p", "permission denied for table t")
    refused(ann, "EXECUTE q (1)", "permission denied for table t")
    with pytest.raises(errors.InsufficientPrivilege):
        ann.execute("SELECT a FROM t WHERE a = %s", (1,), prepare=True)


def test_subscribe_requires_select(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    for source in ("t", "v", "(SELECT a FROM t)"):
        with pytest.raises(errors.InsufficientPrivilege):
            ann.execute(f"COPY (SUBSCRIBE {source} UP TO 1) TO STDOUT")  # type: ignore[arg-type]
        with pytest.raises(errors.InsufficientPrivilege), ann.transaction():
            ann.execute(f"DECLARE c CURSOR FOR SUBSCRIBE {source}")  # type: ignore[arg-type]
            ann.execute("FETCH 1 c")
    boss.execute("GRANT SELECT ON t, v TO ann")
    with ann.transaction():
        ann.execute("DECLARE c CURSOR FOR SUBSCRIBE v")
        assert ann.execute("FETCH 1 c").fetchall()[0][2] == 0
    boss.execute("REVOKE SELECT ON v FROM ann")
    with pytest.raises(errors.InsufficientPrivilege), ann.transaction():
        ann.execute("DECLARE c CURSOR FOR SUBSCRIBE v")
        ann.execute("FETCH 1 c")


def test_computing_requires_usage_on_the_cluster(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("CREATE SCHEMA s")
    boss.execute("GRANT SELECT, UPDATE, INSERT ON t TO ann")
    boss.execute("GRANT USAGE, CREATE ON SCHEMA s TO ann")
    boss.execute("REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC")
    try:
        message = "permission denied for cluster quickstart"
        ann.execute("SELECT 1")
        ann.execute("SELECT a FROM t")
        ann.execute("INSERT INTO t VALUES (1)")
        assert ann.execute("SELECT count(*) FROM mz_objects WHERE name = 't'").fetchall() != [(0,)]
        ann.execute("CREATE VIEW s.v AS SELECT count(*) FROM t")
        refused(ann, "SELECT count(*) FROM t", message)
        refused(ann, "SELECT count(*) FROM t, mz_objects", message)
        refused(ann, "UPDATE t SET a = 2", message)
        refused(ann, "EXPLAIN SELECT count(*) FROM t", message)
        refused(ann, "CREATE MATERIALIZED VIEW s.m AS SELECT a FROM t", message)
        refused(ann, "COPY (SUBSCRIBE (SELECT count(*) FROM t) UP TO 1) TO STDOUT", message)
        ann.execute("CREATE TABLE s.u (a int)")
        refused(ann, "CREATE INDEX ON s.u (a)", message)
        assert ann.execute("SELECT has_cluster_privilege('quickstart', 'USAGE')").fetchall() == [(False,)]
        boss.execute("GRANT USAGE ON CLUSTER quickstart TO ann")
        assert ann.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
    finally:
        boss.execute("GRANT USAGE ON CLUSTER quickstart TO PUBLIC")
        boss.execute("REVOKE USAGE ON CLUSTER quickstart FROM ann")


def signal_outcomes(sessions: Sessions) -> list[str]:
    """What `ann` gets when she signals sessions of others: before and after she has the privileges of their roles."""
    boss, bob = sessions["boss"], sessions["bob"]
    ann = sessions["ann"]
    sessions.role("CREATE USER root SUPERUSER", "root")
    signals = [
        f"SELECT {function}({connection.info.backend_pid})"
        for connection in (boss, bob)
        for function in ("pg_cancel_backend", "pg_terminate_backend")
    ]
    found = [sessions.outcome("ann", signal) for signal in signals]
    boss.execute("GRANT root TO ann")
    boss.execute("GRANT bob TO ann WITH INHERIT FALSE")
    found += [sessions.outcome("ann", signal) for signal in signals]
    boss.execute("GRANT bob TO ann WITH INHERIT TRUE")
    found += [sessions.outcome("ann", signal) for signal in signals]
    ann.execute("SET ROLE root")
    found.append(sessions.outcome("ann", f"SELECT pg_cancel_backend({boss.info.backend_pid})"))
    with pytest.raises(errors.AdminShutdown):
        bob.execute("SELECT 1")
    return [outcome.replace(' or with privileges of the "pg_signal_backend" role', "") for outcome in found]


def test_signals_require_the_privileges_of_the_other_role(sessions: Sessions, oracle: Sessions) -> None:
    """As in PostgreSQL, only superusers may signal the sessions of superusers, not the members of their roles."""
    assert signal_outcomes(sessions) == signal_outcomes(oracle)


def test_without_roles_every_user_is_the_superuser_materialize(sessions: Sessions) -> None:
    with psycopg.connect(sessions.dsn, user="anybody", autocommit=True) as guest:
        assert guest.execute("SELECT current_user").fetchall() == [("anybody",)]
        guest.execute("CREATE TABLE t (a int)")
        assert guest.info.parameter_status("is_superuser") == "on"
        sessions.role("CREATE ROLE readers", "readers")
        guest.execute("SELECT * FROM t")  # the session began as a superuser and remains one
        owner = "SELECT r.name FROM mz_tables t JOIN mz_roles r ON r.id = t.owner_id WHERE t.name = 't'"
        assert guest.execute(owner).fetchall() == [("materialize",)]
    for user, message in (
        ("anybody", 'role "anybody" does not exist'),
        ("readers", 'role "readers" is not permitted to log in'),
    ):
        with pytest.raises(psycopg.OperationalError, match=message):
            psycopg.connect(sessions.dsn, user=user)
    sessions["boss"].execute("ALTER ROLE readers LOGIN")
    with psycopg.connect(sessions.dsn, user="readers") as connection:
        assert connection.info.parameter_status("is_superuser") == "off"
    for option in ("role=materialize", "is_superuser=on"):
        with pytest.raises(psycopg.OperationalError, match="cannot be changed"):
            psycopg.connect(sessions.dsn, user="readers", options=f"-c {option}")
    sessions["boss"].execute("DROP ROLE readers")
    psycopg.connect(sessions.dsn, user="anybody").close()


def test_set_role_reports_is_superuser_to_the_client(sessions: Sessions) -> None:
    boss, _ = sessions["boss"], sessions["ann"]
    boss.execute("SET ROLE ann")
    assert boss.info.parameter_status("is_superuser") == "off"
    boss.execute("DISCARD ALL")
    assert boss.info.parameter_status("is_superuser") == "on"
    boss.execute("SET ROLE ann")
    boss.execute("RESET ROLE")
    assert boss.info.parameter_status("is_superuser") == "on"
    boss.execute("ALTER ROLE ann RENAME TO anna")
    boss.execute("ALTER ROLE anna RENAME TO ann")


def test_an_error_does_not_revert_set_role(sessions: Sessions) -> None:
    """This includes prepared statements, where each Sync ends a transaction."""
    boss, _ = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    for prepare in (False, True):
        boss.execute("SET ROLE ann", prepare=prepare)
        for _ in range(2):
            with pytest.raises(errors.InsufficientPrivilege):
                boss.execute("SELECT * FROM t", prepare=prepare)
        assert boss.execute("SELECT current_user", prepare=prepare).fetchall() == [("ann",)]
        boss.execute("RESET ROLE", prepare=prepare)
        boss.execute("SELECT * FROM t", prepare=prepare)


def test_the_objects_of_the_first_superuser_cannot_be_dropped(sessions: Sessions, oracle: Sessions) -> None:
    outcomes = []
    for each in (sessions, oracle):
        ((name,),) = each["boss"].execute("SELECT current_user").fetchall()
        outcomes.append(each.outcome("boss", "DROP OWNED BY CURRENT_USER").replace(f"role {name} ", "role ... "))
    assert outcomes[0] == outcomes[1]


def test_roles_without_createrole_cannot_manage_roles(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    _ = sessions["bob"]
    for statement, act in {
        "CREATE ROLE r": "create role",
        "ALTER ROLE bob SUPERUSER": "alter role",
        "ALTER ROLE ann SUPERUSER": "alter role",
        "ALTER ROLE bob RENAME TO r": "rename role",
        "DROP ROLE bob": "drop role",
        "GRANT bob TO ann": 'grant role "bob"',
        "GRANT materialize TO ann": 'grant role "materialize"',
        "REVOKE bob FROM ann": 'revoke role "bob"',
    }.items():
        refused(ann, statement, f"permission denied to {act}")
    refused(boss, "DROP ROLE materialize", "current user cannot be dropped", "55006")
    refused(boss, "ALTER ROLE materialize NOSUPERUSER", 'role "materialize" cannot be altered', "0A000")
    refused(boss, "GRANT ann TO materialize", 'role "materialize" cannot be made a member of a role', "0A000")
    refused(boss, "ALTER ROLE materialize RENAME TO r", "session user cannot be renamed", "0A000")


def test_objects_of_a_database_require_usage_on_it(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    name = sessions.database
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("GRANT SELECT ON t TO ann")
    boss.execute(f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")  # type: ignore[arg-type]
    refused(ann, f"SELECT * FROM {name}.public.t", f"permission denied for database {name}")
    refused(ann, "SELECT * FROM t", 'relation "t" does not exist', "42P01")
    with pytest.raises(psycopg.OperationalError, match=f"permission denied for database {name}"):
        psycopg.connect(sessions.dsn, user="ann")
    boss.execute(f"GRANT USAGE ON DATABASE {name} TO ann")  # type: ignore[arg-type]
    assert ann.execute("SELECT * FROM t").fetchall() == []


def test_create_database_requires_createdb(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    refused(ann, "CREATE DATABASE roles_of_ann", "permission denied to create database")
    boss.execute("ALTER ROLE ann CREATEDB")
    ann.execute("CREATE DATABASE roles_of_ann")
    try:
        with psycopg.connect(sessions.dsn, dbname="roles_of_ann", user="ann", autocommit=True) as at_home:
            at_home.execute("CREATE TABLE t (a int)")
            at_home.execute("CREATE SCHEMA s")
        refused(sessions["bob"], "DROP DATABASE roles_of_ann", "must be owner of database roles_of_ann")
    finally:
        ann.execute("DROP DATABASE roles_of_ann CASCADE")


def test_system_tables_show_owners_and_privileges(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    sessions.role("CREATE ROLE readers NOINHERIT ROLE ann", "readers")
    boss.execute("GRANT CREATE ON SCHEMA public TO ann")
    ann.execute("CREATE TABLE t (a int)")
    ann.execute("CREATE INDEX i ON t (a)")
    ann.execute("GRANT SELECT, UPDATE ON t TO readers, PUBLIC")
    ids = dict(boss.execute("SELECT name, id FROM mz_roles").fetchall())
    for table in ("mz_tables", "mz_objects"):
        ((owner, granted),) = boss.execute(
            f"SELECT owner_id, privileges FROM {table} WHERE name = 't' AND owner_id = '{ids['ann']}'"  # type: ignore[arg-type]
        ).fetchall()
        assert owner == ids["ann"]
        assert granted[0] == f"{owner}=arwdDxtm/{owner}"
        assert sorted(granted[1:]) == sorted([f"p=rw/{owner}", f"{ids['readers']}=rw/{owner}"])
    assert boss.execute(f"SELECT count(*) FROM mz_indexes WHERE owner_id = '{ids['ann']}'").fetchall() == [(1,)]  # type: ignore[arg-type]
    assert boss.execute("SELECT * FROM mz_role_members").fetchall() == [
        (ids["readers"], ids["ann"], ids["materialize"])
    ]
    assert boss.execute("SELECT inherit, rolcanlogin, rolsuper FROM mz_roles WHERE name = 'readers'").fetchall() == [
        (False, False, False)
    ]
    assert boss.execute("SHOW ROLES LIKE 'a%'").fetchall() == [("ann",)]
    shown = [row for row in boss.execute("SHOW PRIVILEGES LIKE 't'").fetchall() if row[2] == sessions.database]
    assert ("ann", "PUBLIC", sessions.database, "public", "t", "table", "SELECT") in shown
    with ann.transaction():
        ann.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT name FROM mz_roles WHERE name LIKE 'new%')")
        ann.execute("FETCH 0 c")
        sessions.role("CREATE ROLE newcomer", "newcomer")
        assert [row[2] for row in ann.execute("FETCH 1 c").fetchall()] == ["newcomer"]


def test_a_replaced_view_keeps_its_owner_and_privileges(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE VIEW v AS SELECT 1 AS a")
    boss.execute("GRANT SELECT ON v TO ann")
    boss.execute("CREATE OR REPLACE VIEW v AS SELECT 2 AS a")
    assert ann.execute("SELECT * FROM v").fetchall() == [(2,)]
    boss.execute("ALTER VIEW v OWNER TO ann")
    boss.execute("CREATE OR REPLACE VIEW v AS SELECT 3 AS a")
    ann.execute("DROP VIEW v")


def test_defaults_and_index_expressions_cannot_read_tables(sessions: Sessions) -> None:
    """Defaults and index expressions are computed for other roles than the one that defined them. They must not read
    tables.
    """
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE secret (a int)")
    boss.execute("GRANT CREATE ON SCHEMA public TO ann")
    message = "cannot use subquery in DEFAULT expression"
    refused(ann, "CREATE TABLE t (a int DEFAULT (SELECT max(a) FROM secret))", message, "0A000")
    ann.execute("CREATE TABLE t (a int)")
    refused(ann, "CREATE INDEX ON t ((SELECT a FROM secret))", "cannot use subquery in index expression", "0A000")


def test_a_grant_that_is_rolled_back_has_no_effect(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    with boss.transaction(force_rollback=True):
        boss.execute("GRANT SELECT ON t TO ann")
    refused(ann, "SELECT * FROM t", "permission denied for table t")


def test_a_dropped_role_has_only_the_privileges_of_public(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("DROP ROLE ann")
    refused(ann, "SELECT * FROM t", "permission denied for table t")
    boss.execute("GRANT SELECT ON t TO PUBLIC")
    assert ann.execute("SELECT * FROM t").fetchall() == []


def test_the_privileges_that_create_hold_requires(sessions: Sessions, server: ServerThread) -> None:
    """CREATE on its schema, SELECT on each object, and USAGE on the cluster of each index and materialized view."""
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int)")
    boss.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    boss.execute("CREATE INDEX i ON t (a)")

    def refusal(*names: str) -> str | None:
        state = server.app.coordinator.state
        database = state.database_named(sessions.database)
        role = state.role_named("ann")
        assert database is not None
        assert role is not None
        schema = state.schema_named(database.id, "public")
        assert schema is not None
        ids = [item.id for name in names if (item := state.item_named(schema.id, name)) is not None]
        assert len(ids) == len(names)
        try:
            privileges.require_hold(state, role.id, schema, ids)
        except PgError as error:
            return error.message
        return None

    _ = ann
    assert refusal("t") == "permission denied for schema public"
    boss.execute("GRANT CREATE ON SCHEMA public TO ann")
    assert refusal("t") == "permission denied for table t"
    boss.execute("GRANT SELECT ON t TO ann")
    assert refusal("t", "i") is None
    assert refusal("t", "m") == "permission denied for materialized view m"
    boss.execute("GRANT SELECT ON m TO ann")
    assert refusal("t", "m") is None
    boss.execute("REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC")
    try:
        assert refusal("t") is None
        assert refusal("m") == refusal("i") == "permission denied for cluster quickstart"
    finally:
        boss.execute("GRANT USAGE ON CLUSTER quickstart TO PUBLIC")


def test_testdrive_scripts_can_connect_as_mz_system_when_roles_exist(dsn: str, tmp_path: Path) -> None:
    server = dsn.rpartition("@")[2].partition("/")[0]
    script = tmp_path / "script.td"
    script.write_text(
        "> CREATE ROLE of_the_script\n\n"
        f"$ postgres-connect name=system url=postgres://mz_system@{server}\n\n"
        "$ postgres-execute connection=system\nCREATE ROLE by_the_system\nDROP ROLE by_the_system\n\n"
        f"$ postgres-execute connection=postgres://mz_system@{server}/materialize\nDROP ROLE of_the_script\n"
    )
    command = [sys.executable, "-m", "testdrive", "--url", dsn, "--no-reset", str(script)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0, ended.stderr
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP ROLE IF EXISTS of_the_script, by_the_system")
