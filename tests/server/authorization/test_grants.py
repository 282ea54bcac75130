"""GRANT OPTION, ADMIN OPTION, CREATEROLE and default privileges, compared with a real PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from catalog.acls import ITEMS_MAX
from tests.examples import examples
from tests.fix_server import ServerThread, server_without_spark
from tests.server.authorization.test_roles import Sessions
from tests.server.authorization.test_roles import oracle as oracle
from tests.server.pg_catalog.test_pg_catalog import psql

USERS = ("ann", "bob", "cat")
SCRIPTS = {
    "options": """
boss: CREATE TABLE t (a int, b int)
boss: GRANT SELECT, INSERT ON t TO ann WITH GRANT OPTION
ann: GRANT SELECT ON t TO bob
ann: GRANT SELECT ON t TO PUBLIC WITH GRANT OPTION
ann: GRANT SELECT ON t TO PUBLIC
bob: GRANT SELECT ON t TO cat
bob: GRANT SELECT, UPDATE ON t TO cat
ann: GRANT SELECT, UPDATE ON t TO bob WITH GRANT OPTION
ann: GRANT ALL ON t TO bob
bob: GRANT SELECT ON t TO ann WITH GRANT OPTION
bob: GRANT SELECT ON t TO cat WITH GRANT OPTION
boss: REVOKE GRANT OPTION FOR SELECT ON t FROM ann
boss: REVOKE SELECT ON t FROM ann
boss: REVOKE SELECT ON t FROM ann RESTRICT
bob: REVOKE SELECT ON t FROM ann
ann: REVOKE GRANT OPTION FOR SELECT ON t FROM bob
ann: REVOKE GRANT OPTION FOR SELECT ON t FROM bob CASCADE
cat: GRANT SELECT ON t TO cat
boss: REVOKE ALL ON t FROM ann CASCADE
cat: GRANT SELECT ON t TO ann
boss: GRANT UPDATE ON t TO bob GRANTED BY boss
boss: GRANT UPDATE ON t TO bob WITH GRANT OPTION GRANTED BY current_user
boss: GRANT UPDATE ON t TO bob GRANTED BY ann
boss: DROP ROLE bob
boss: ALTER TABLE t OWNER TO bob
bob: GRANT DELETE ON t TO ann WITH GRANT OPTION
boss: GRANT DELETE ON t TO cat
ann: GRANT DELETE ON t TO cat
boss: ALTER TABLE t OWNER TO ann
boss: DROP ROLE ann
boss: REASSIGN OWNED BY boss TO cat
boss: REASSIGN OWNED BY ann, boss TO cat
boss: DROP OWNED BY boss
ann: REASSIGN OWNED BY boss TO ann
boss: REASSIGN OWNED BY ann TO cat
boss: REVOKE GRANT OPTION FOR ALL ON t FROM PUBLIC
""",
    "columns": """
boss: CREATE TABLE t (a int, b int)
boss: GRANT SELECT (a), UPDATE (a, b) ON t TO ann WITH GRANT OPTION
ann: GRANT SELECT (a) ON t TO bob WITH GRANT OPTION
ann: GRANT SELECT ON t TO bob
bob: GRANT SELECT (a, b) ON t TO cat
bob: GRANT SELECT (a), INSERT (a) ON t TO cat
ann: GRANT ALL (b) ON t TO cat
boss: REVOKE GRANT OPTION FOR SELECT (a) ON t FROM ann
boss: REVOKE SELECT ON t FROM ann
boss: REVOKE SELECT ON t FROM ann CASCADE
cat: GRANT UPDATE (b) ON t TO bob
boss: GRANT SELECT ON t TO bob WITH GRANT OPTION
bob: GRANT SELECT (b) ON t TO cat
bob: GRANT SELECT (b) ON t TO cat WITH GRANT OPTION
cat: GRANT SELECT (b) ON t TO bob
cat: GRANT SELECT (b) ON t TO ann
boss: REVOKE SELECT ON t FROM bob
boss: REVOKE SELECT ON t FROM bob CASCADE
boss: SELECT has_column_privilege('ann', 't', 'b', 'UPDATE WITH GRANT OPTION')
boss: SELECT has_column_privilege('ann', 't', 'b', 'SELECT WITH GRANT OPTION')
boss: SELECT has_any_column_privilege('ann', 't', 'UPDATE WITH GRANT OPTION')
boss: SELECT has_table_privilege('ann', 't', 'UPDATE WITH GRANT OPTION'), has_table_privilege('t', 'SELECT')
boss: SELECT has_table_privilege('bob', 't', 'frobnicate with grant option')
""",
    "objects": """
boss: CREATE SCHEMA s
boss: CREATE SEQUENCE n
boss: GRANT USAGE, CREATE ON SCHEMA s TO ann WITH GRANT OPTION
ann: GRANT USAGE ON SCHEMA s TO bob
bob: GRANT USAGE ON SCHEMA s TO cat
cat: GRANT USAGE ON SCHEMA s TO cat
ann: CREATE TABLE s.u (a int)
boss: GRANT SELECT ON s.u TO bob
ann: REVOKE SELECT ON s.u FROM bob
boss: GRANT USAGE ON SEQUENCE n TO ann WITH GRANT OPTION
ann: GRANT USAGE ON SEQUENCE n TO bob
ann: GRANT USAGE, SELECT ON SEQUENCE n TO bob
boss: REVOKE GRANT OPTION FOR USAGE ON SEQUENCE n FROM ann
boss: SELECT has_schema_privilege('ann', 's', 'CREATE WITH GRANT OPTION')
boss: SELECT has_schema_privilege('bob', 's', 'USAGE WITH GRANT OPTION')
boss: SELECT has_sequence_privilege('ann', 'n', 'USAGE WITH GRANT OPTION')
boss: CREATE TYPE mood AS ENUM ('sad', 'ok')
boss: CREATE DOMAIN positive AS int CHECK (VALUE > 0)
boss: REVOKE USAGE ON TYPE mood FROM PUBLIC
boss: REVOKE USAGE ON DOMAIN positive FROM PUBLIC
ann: CREATE TABLE s.m (a mood)
ann: CREATE TABLE s.p (a positive)
ann: ALTER TABLE s.u ADD COLUMN m mood
boss: CREATE TABLE moods (a mood, b positive)
boss: GRANT SELECT ON moods TO ann
ann: CREATE TABLE s.copied AS SELECT a FROM moods WITH NO DATA
ann: CREATE TABLE s.copied (LIKE moods)
ann: CREATE DOMAIN s.d AS positive
ann: CREATE VIEW s.v AS SELECT a FROM moods
ann: SELECT 'sad'::mood
ann: GRANT USAGE ON TYPE mood TO bob
boss: GRANT USAGE ON TYPE mood, positive TO ann WITH GRANT OPTION
ann: CREATE TABLE s.m (a mood)
ann: CREATE TABLE s.p (a positive)
ann: GRANT USAGE ON TYPE mood TO bob
boss: SELECT has_type_privilege('ann', 'mood', 'USAGE WITH GRANT OPTION'), has_type_privilege('bob', 'mood', 'USAGE')
boss: SELECT has_type_privilege('cat', 'positive', 'USAGE'), has_type_privilege('positive', 'USAGE')
boss: SELECT has_type_privilege('nothing', 'USAGE')
boss: SELECT has_type_privilege('mood', 'SELECT')
boss: GRANT USAGE ON DOMAIN mood TO bob
boss: GRANT SELECT ON TYPE mood TO bob
boss: GRANT USAGE ON TYPE nothing TO bob
boss: REVOKE USAGE ON TYPE mood FROM ann
boss: REVOKE USAGE ON TYPE mood FROM ann CASCADE
boss: DROP ROLE ann
""",
    "admin": """
boss: CREATE ROLE readers
boss: CREATE ROLE writers
ann: GRANT readers TO bob
ann: REVOKE readers FROM bob
boss: GRANT readers TO ann WITH ADMIN OPTION
ann: GRANT readers TO bob
ann: GRANT readers TO bob
ann: GRANT readers TO bob WITH ADMIN TRUE
bob: GRANT readers TO cat WITH INHERIT FALSE, SET TRUE
bob: GRANT readers TO ann WITH ADMIN OPTION
bob: GRANT readers TO bob
bob: GRANT readers TO readers
boss: GRANT readers TO cat
bob: REVOKE readers FROM ann
boss: REVOKE ADMIN OPTION FOR readers FROM ann
boss: REVOKE readers FROM ann
ann: REVOKE ADMIN OPTION FOR readers FROM bob RESTRICT
ann: REVOKE INHERIT OPTION FOR readers FROM bob
ann: REVOKE SET OPTION FOR readers FROM bob
bob: SET ROLE readers
cat: SET ROLE readers
cat: RESET ROLE
boss: SELECT pg_has_role('cat', 'readers', 'USAGE'), pg_has_role('bob', 'readers', 'MEMBER')
boss: SELECT pg_has_role('bob', 'readers', 'SET'), pg_has_role('bob', 'readers', 'USAGE WITH ADMIN OPTION')
boss: SELECT pg_has_role('cat', 'readers', 'MEMBER WITH GRANT OPTION'), pg_has_role('bob', 'readers', 'USAGE')
boss: REVOKE ADMIN OPTION FOR readers FROM ann CASCADE
boss: REVOKE readers FROM bob GRANTED BY ann
boss: GRANT readers TO bob GRANTED BY ann
boss: GRANT readers TO ann WITH ADMIN OPTION
boss: GRANT readers TO bob GRANTED BY ann
bob: GRANT readers TO cat GRANTED BY ann
ann: GRANT readers TO cat GRANTED BY bob
ann: REVOKE readers FROM bob GRANTED BY boss
boss: DROP ROLE ann
boss: GRANT readers TO bob WITH GRANT OPTION
boss: GRANT readers TO bob WITH FROB OPTION
boss: REVOKE FROB OPTION FOR readers FROM bob
boss: GRANT readers TO bob WITH ADMIN MAYBE
boss: GRANT SELECT TO bob
boss: GRANT writers TO readers WITH ADMIN OPTION
ann: GRANT writers TO cat
boss: CREATE ROLE chief SUPERUSER
boss: GRANT chief TO ann WITH ADMIN OPTION
ann: GRANT chief TO bob
ann: REVOKE chief FROM bob
boss: DROP OWNED BY ann
boss: DROP ROLE chief, writers
""",
    "session": """
boss: CREATE TABLE t (a int)
boss: ALTER TABLE t OWNER TO ann
boss: GRANT bob TO ann
ann: SET SESSION AUTHORIZATION bob
ann: SET SESSION AUTHORIZATION ann
ann: SELECT current_user, session_user
boss: SET SESSION AUTHORIZATION nobody_at_all
boss: SET SESSION AUTHORIZATION ann
boss: SELECT current_user, session_user
boss: SHOW is_superuser
boss: SHOW session_authorization
boss: GRANT SELECT ON t TO bob WITH GRANT OPTION
boss: SET ROLE cat
boss: SET ROLE bob
boss: SELECT current_user, session_user
boss: CREATE ROLE one
boss: RESET ROLE
boss: SELECT current_user, session_user
boss: SHOW is_superuser
boss: DROP ROLE ann
boss: SET SESSION AUTHORIZATION 'bob'
boss: GRANT SELECT ON t TO cat
boss: RESET ALL
boss: SELECT current_user, session_user
boss: RESET SESSION AUTHORIZATION
boss: SELECT current_user, session_user
boss: SHOW is_superuser
boss: BEGIN
boss: SET LOCAL SESSION AUTHORIZATION bob
boss: SELECT current_user, session_user
boss: COMMIT
boss: SELECT current_user, session_user
boss: BEGIN
boss: SET SESSION AUTHORIZATION bob
boss: ROLLBACK
boss: SELECT current_user, session_user
boss: SET SESSION AUTHORIZATION bob
boss: DISCARD ALL
boss: SELECT current_user, session_user
boss: SET LOCAL SESSION AUTHORIZATION bob
boss: SET SESSION AUTHORIZATION bob
boss: SET SESSION AUTHORIZATION DEFAULT
boss: SELECT current_user, session_user
""",
    "createrole": """
ann: CREATE ROLE one
boss: ALTER ROLE ann CREATEROLE
ann: CREATE ROLE one
ann: CREATE ROLE two SUPERUSER
ann: CREATE ROLE two CREATEDB
ann: CREATE ROLE two CREATEROLE LOGIN
ann: GRANT one TO bob
ann: SET ROLE one
ann: GRANT one TO ann
ann: SET ROLE one
ann: RESET ROLE
ann: ALTER ROLE one LOGIN
ann: ALTER ROLE one CREATEDB
ann: ALTER ROLE one SUPERUSER
ann: ALTER ROLE bob LOGIN
ann: ALTER ROLE bob PASSWORD 'x'
ann: ALTER ROLE boss_of_all LOGIN
ann: ALTER ROLE one RENAME TO uno
ann: ALTER ROLE bob RENAME TO rob
bob: ALTER ROLE uno NOLOGIN
bob: DROP ROLE uno
ann: DROP ROLE bob
ann: DROP ROLE uno
ann: CREATE ROLE three ROLE bob ADMIN cat
cat: GRANT three TO ann
ann: CREATE ROLE four IN ROLE three
ann: CREATE ROLE five IN ROLE bob
ann: CREATE ROLE six ADMIN ann
ann: CREATE ROLE seven IN ROLE three ROLE three
ann: REVOKE three FROM ann
ann: REVOKE ADMIN OPTION FOR three FROM ann
boss: ALTER ROLE ann NOCREATEROLE
ann: DROP ROLE three
ann: ALTER ROLE three LOGIN
ann: GRANT three TO bob
boss: ALTER ROLE ann CREATEROLE
ann: DROP ROLE three, four, two
boss: DROP ROLE IF EXISTS three, four, six, seven
""",
    "defaults": """
boss: CREATE SCHEMA s
boss: GRANT CREATE, USAGE ON SCHEMA s TO PUBLIC
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ann
boss: CREATE TABLE s.one (a int)
ann: SELECT has_table_privilege('s.one', 'SELECT'), has_table_privilege('s.one', 'INSERT')
boss: CREATE VIEW s.v AS SELECT 1 AS a
ann: SELECT has_table_privilege('s.v', 'SELECT')
ann: CREATE TABLE s.mine (a int)
bob: SELECT has_table_privilege('s.mine', 'SELECT')
ann: ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT INSERT, UPDATE ON TABLES TO bob WITH GRANT OPTION
ann: CREATE TABLE s.two (a int)
bob: SELECT has_table_privilege('s.two', 'INSERT WITH GRANT OPTION'), has_table_privilege('s.two', 'SELECT')
ann: ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM ann
ann: CREATE TABLE s.three (a int)
ann: SELECT has_table_privilege('s.three', 'INSERT')
bob: ALTER DEFAULT PRIVILEGES FOR ROLE ann GRANT SELECT ON TABLES TO bob
boss: ALTER DEFAULT PRIVILEGES FOR ROLE ann IN SCHEMA s GRANT USAGE ON SEQUENCES TO PUBLIC
ann: CREATE SEQUENCE s.n
bob: SELECT has_sequence_privilege('s.n', 'USAGE'), has_sequence_privilege('s.n', 'SELECT')
boss: ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC
boss: CREATE TYPE s.mood AS ENUM ('ok')
ann: CREATE TABLE s.moods (a s.mood)
boss: ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO ann
boss: CREATE SCHEMA r
ann: SELECT has_schema_privilege('r', 'USAGE'), has_schema_privilege('r', 'CREATE')
boss: ALTER DEFAULT PRIVILEGES FOR ROLE ann GRANT CREATE ON SCHEMAS TO bob
boss: CREATE SCHEMA owned AUTHORIZATION ann
bob: SELECT has_schema_privilege('owned', 'CREATE')
boss: ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT USAGE ON SCHEMAS TO ann
boss: ALTER DEFAULT PRIVILEGES IN SCHEMA s IN SCHEMA r GRANT SELECT ON TABLES TO ann
boss: ALTER DEFAULT PRIVILEGES GRANT USAGE ON TABLES TO ann
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT ON SCHEMAS TO ann
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT (a) ON TABLES TO ann
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC WITH GRANT OPTION
boss: ALTER DEFAULT PRIVILEGES IN SCHEMA nothing GRANT SELECT ON TABLES TO ann
boss: ALTER DEFAULT PRIVILEGES FOR ROLE nobody_at_all GRANT SELECT ON TABLES TO ann
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO nobody_at_all
boss: CREATE OR REPLACE VIEW s.v AS SELECT 1 AS a
ann: SELECT has_table_privilege('s.v', 'SELECT')
boss: ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO cat
boss: CREATE OR REPLACE VIEW s.v AS SELECT 1 AS a
cat: SELECT has_table_privilege('s.v', 'SELECT')
boss: DROP ROLE bob
boss: DROP SCHEMA s CASCADE
boss: REASSIGN OWNED BY ann TO bob
boss: DROP ROLE ann
boss: DROP OWNED BY ann
boss: DROP OWNED BY bob
boss: DROP ROLE ann
""",
}


@pytest.fixture
def sessions(passing_server: ServerThread) -> Iterator[Sessions]:
    """Without Spark: no statement computes."""
    sessions = Sessions(passing_server.dsn())
    yield sessions
    sessions.close()


_SYSTEM_COLUMN = re.compile(r'01006 [^;]* for column "(tableoid|cmax|xmax|cmin|xmin|ctid)" of relation "\w+"; ')


@pytest.fixture
def cleared(oracle: Sessions) -> Iterator[Sessions]:
    """A PostgreSQL, where DROP OWNED leaves privileges that others than the owner granted."""
    yield oracle
    oracle["boss"].execute("DROP SCHEMA IF EXISTS public, s, r, owned CASCADE")


_MAINTAIN = re.compile(r"(=[arwdDxt*]*)m\*?(?=/)")


def expected(outcome: str, oracle: Sessions, sessions: Sessions) -> str:
    """PostgreSQL's outcome with the name of Tidewire's superuser, and without system columns."""
    outcome = _SYSTEM_COLUMN.sub("", outcome).replace(oracle.database, sessions.database)
    return re.sub(r"\bpostgres\b", "materialize", outcome)


def shown(side: Sessions, query: str) -> str:
    """The outcome of a query over catalogs, without MAINTAIN, which PostgreSQL 16 lacks (see `test_maintain.py`)."""
    return _MAINTAIN.sub(r"\1", side.outcome("boss", query))


ROLES_OF_SCRIPTS = ("readers", "writers", "chief", "one", "two", "uno", "three", "four", "five", "six", "seven")


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.long
def test_statements_have_postgresqls_outcomes(name: str, sessions: Sessions, cleared: Sessions) -> None:
    oracle = cleared
    superuser = {sessions: "materialize", oracle: "postgres"}
    for side in (sessions, oracle):
        for user in USERS:
            _ = side[user]
        side._roles += ROLES_OF_SCRIPTS
    different = []
    for line in SCRIPTS[name].strip().splitlines():
        user, _, statement = line.partition(": ")
        ours, theirs = (
            side.outcome(user, re.sub(r"\bboss\b", superuser[side], statement)) for side in (sessions, oracle)
        )
        theirs = expected(theirs, oracle, sessions)
        if ours != theirs:
            different.append(f"{line}\n    ours   {ours}\n    theirs {theirs}")
        for query in SHOWN:
            ours, theirs = shown(sessions, query), expected(shown(oracle, query), oracle, sessions)
            if ours != theirs:
                different.append(f"{line}\n{query}\n    ours   {ours}\n    theirs {theirs}")
    assert not different, "\n".join(different)


SHOWN = (
    "SELECT c.relname, array_to_string(c.relacl, ' ') FROM pg_class c JOIN pg_namespace n "
    "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v', 'S') AND n.nspname IN ('public', 's')",
    "SELECT attrelid::regclass::text, attname, array_to_string(attacl, ' ') FROM pg_attribute "
    "WHERE attacl IS NOT NULL AND attnum > 0 AND attrelid >= 16384",
    "SELECT nspname, array_to_string(nspacl, ' ') FROM pg_namespace WHERE nspname IN ('s', 'r', 'owned')",
    "SELECT typname, array_to_string(typacl, ' ') FROM pg_type WHERE typname IN ('mood', 'positive')",
    "SELECT r.rolname, m.rolname, g.rolname, admin_option, inherit_option, set_option FROM pg_auth_members "
    "JOIN pg_roles r ON r.oid = roleid JOIN pg_roles m ON m.oid = member JOIN pg_roles g ON g.oid = grantor "
    "WHERE r.rolname NOT LIKE 'pg_%'",
    "SELECT pg_get_userbyid(defaclrole), nspname, defaclobjtype, array_to_string(defaclacl, ' ') "
    "FROM pg_default_acl LEFT JOIN pg_namespace n ON n.oid = defaclnamespace",
)
"""What the catalogs show after each statement."""

ROLES = ("r1", "r2", "r3", "r4")
ROLE = st.sampled_from(ROLES)
GRANTEES = st.lists(st.sampled_from((*ROLES, "PUBLIC")), min_size=1, max_size=2, unique=True).map(", ".join)
MEMBERS = st.lists(ROLE, min_size=1, max_size=2, unique=True).map(", ".join)
ON_TABLE = st.sampled_from(
    (
        *("SELECT ON t", "INSERT ON t", "SELECT, INSERT ON t", "ALL ON t"),
        *("SELECT (a) ON t", "INSERT (a), SELECT (b) ON t", "SELECT, UPDATE (a) ON t", "ALL (b) ON t"),
    )
)
ON_OTHERS = st.sampled_from(
    (
        *("USAGE ON SCHEMA s", "CREATE ON SCHEMA s", "ALL ON SCHEMA s", "USAGE ON SEQUENCE n", "ALL ON SEQUENCE n"),
        *("SELECT ON ALL TABLES IN SCHEMA s", "ALL ON ALL TABLES IN SCHEMA s"),
    )
)
ON = ON_TABLE | ON_TABLE | ON_OTHERS
OPTION = st.sampled_from(("", " WITH GRANT OPTION"))
OPTION_FOR = st.sampled_from(("", "", "GRANT OPTION FOR "))
BEHAVIOR = st.sampled_from(("", " RESTRICT", " CASCADE", " CASCADE"))
GRANTED_BY = st.just("") | st.just("") | st.builds(" GRANTED BY {}".format, ROLE)
WITH = st.sampled_from(
    ("", " WITH ADMIN OPTION", " WITH ADMIN TRUE", " WITH INHERIT FALSE", " WITH SET FALSE, INHERIT TRUE")
)
MEMBERSHIP_OPTION_FOR = st.sampled_from(("", "", "ADMIN OPTION FOR ", "INHERIT OPTION FOR ", "SET OPTION FOR "))
DEFAULTS = st.builds(
    "ALTER DEFAULT PRIVILEGES{}{} ".format,
    st.just("") | st.builds(" FOR ROLE {}".format, ROLE),
    st.sampled_from(("", " IN SCHEMA s")),
)
DEFAULT_ON = st.sampled_from(
    ("SELECT ON TABLES", "ALL ON TABLES", "USAGE ON SEQUENCES", "USAGE ON SCHEMAS", "ALL ON TYPES")
)
CREATED = st.builds(
    str.format,
    st.sampled_from(("TABLE s.x{} (a int)", "SEQUENCE s.x{}", "SCHEMA x{}", "VIEW s.x{} AS SELECT 1 AS a")),
    st.integers(1, 99),
)
STATEMENTS = st.one_of(
    st.builds("GRANT {} TO {}{}".format, ON, GRANTEES, OPTION),
    st.builds("GRANT {} TO {} WITH GRANT OPTION".format, ON, MEMBERS),
    st.builds("REVOKE {}{} FROM {}{}".format, OPTION_FOR, ON, GRANTEES, BEHAVIOR),
    st.builds("GRANT {} TO {}{}{}".format, MEMBERS, MEMBERS, WITH, GRANTED_BY),
    st.builds("GRANT {} TO {} WITH ADMIN OPTION".format, ROLE, ROLE),
    st.builds("REVOKE {}{} FROM {}{}{}".format, MEMBERSHIP_OPTION_FOR, MEMBERS, MEMBERS, GRANTED_BY, BEHAVIOR),
    st.builds("{}GRANT {} TO {}{}".format, DEFAULTS, DEFAULT_ON, GRANTEES, OPTION),
    st.builds("{}REVOKE {}{} FROM {}{}".format, DEFAULTS, OPTION_FOR, DEFAULT_ON, GRANTEES, BEHAVIOR),
    st.builds("ALTER {} OWNER TO {}".format, st.sampled_from(("TABLE t", "SCHEMA s")), ROLE),
    st.builds("CREATE {}".format, CREATED),
    st.builds("ALTER ROLE {} {}".format, ROLE, st.sampled_from(("NOINHERIT", "CREATEROLE", "NOCREATEROLE"))),
    st.builds("DROP ROLE {}".format, ROLE),
    st.builds(
        "SELECT has_table_privilege('{}', 't', '{}')".format,
        ROLE,
        st.sampled_from(("SELECT", "INSERT WITH GRANT OPTION")),
    ),
)


def cleared_of_roles(side: Sessions) -> None:
    """Drops the roles of the random test, their objects and all schemas."""
    boss = side["boss"]
    boss.execute("RESET ROLE")
    for (name,) in boss.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^(x[0-9]+|s|public)$'").fetchall():
        boss.execute(f"DROP SCHEMA {name} CASCADE".encode())
    roles = [name for (name,) in boss.execute("SELECT rolname FROM pg_roles WHERE rolname ~ '^r[0-9]$'").fetchall()]
    for name in roles:
        boss.execute(f"DROP OWNED BY {name} CASCADE".encode())
    for kind in ("TABLES", "SEQUENCES", "SCHEMAS", "TYPES"):
        boss.execute(f"ALTER DEFAULT PRIVILEGES REVOKE ALL ON {kind} FROM PUBLIC".encode())
    boss.execute("ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO PUBLIC")
    if roles:
        boss.execute(f"DROP ROLE {', '.join(roles)}".encode())


@pytest.mark.sql
def test_random_statements_have_postgresqls_effects(cleared: Sessions, passing_server: ServerThread) -> None:
    """The same GRANT, REVOKE and ALTER DEFAULT PRIVILEGES have the same outcomes and leave the same lists."""
    oracle, ours = cleared, Sessions(passing_server.dsn())
    sides = (ours, oracle)
    for side in sides:
        side["boss"].add_notice_handler(lambda d, side=side: side.notices.append(f"{d.sqlstate} {d.message_primary}"))

    @examples(10)
    @given(st.lists(st.tuples(ROLE | st.just("boss"), STATEMENTS), min_size=5, max_size=25))
    def compare(script: list[tuple[str, str]]) -> None:
        for side in sides:
            cleared_of_roles(side)
            boss = side["boss"]
            boss.execute("CREATE SCHEMA public; CREATE SCHEMA s; GRANT USAGE ON SCHEMA public TO PUBLIC")
            for role in ROLES:
                boss.execute(f"CREATE ROLE {role}".encode())
            boss.execute("CREATE TABLE t (a int, b int); CREATE SEQUENCE n; ALTER TABLE t OWNER TO r1")
        done = []
        for actor, statement in script:
            done.append(f"{actor}: {statement}")
            outcomes = []
            for side in sides:
                side["boss"].execute("RESET ROLE")
                outcome = "" if actor == "boss" else side.outcome("boss", f"SET ROLE {actor}")
                if outcome in ("", "SET"):
                    outcome += side.outcome("boss", statement)
                side["boss"].execute("RESET ROLE")
                outcomes.append(outcome)
            assert outcomes[0] == expected(outcomes[1], oracle, ours), "\n".join(done)
            for query in SHOWN:
                theirs = expected(shown(oracle, query), oracle, ours)
                assert shown(ours, query) == theirs, "\n".join((*done, query))

    try:
        compare()
    finally:
        for side in sides:
            cleared_of_roles(side)
        ours.close()


def test_what_is_remembered_about_a_plan_ends_with_the_catalog_state(sessions: Sessions) -> None:
    """A plan is shared by roles and transactions, and its privileges are not."""
    boss = sessions["boss"]
    sessions.user("ann")
    sessions.user("bob")
    boss.execute("CREATE SCHEMA s; CREATE TABLE s.t (a int); CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    boss.execute("PREPARE p AS SELECT a FROM public.t")
    boss.execute("SET search_path = s, public")

    def outcomes(statement: str) -> list[str]:
        found = []
        for role in ("ann", "bob", "ann"):
            boss.execute(f"SET ROLE {role}".encode())
            found.append(sessions.outcome("boss", statement))
        boss.execute("RESET ROLE")
        return found

    denied, rows = "42501 permission denied for table t", "[(1,)]"
    assert outcomes("EXECUTE p") == [denied] * 3
    boss.execute("BEGIN; GRANT SELECT ON public.t TO ann; SAVEPOINT one; SET LOCAL ROLE ann")
    assert sessions.outcome("boss", "EXECUTE p") == rows
    boss.execute("ROLLBACK")
    assert outcomes("EXECUTE p") == [denied] * 3
    boss.execute("GRANT SELECT ON public.t TO ann")
    assert outcomes("EXECUTE p") == [rows, denied, rows]
    assert outcomes("SELECT a FROM t") == [rows, denied, rows]
    boss.execute("GRANT USAGE ON SCHEMA s TO ann; GRANT SELECT ON s.t TO ann")
    assert outcomes("SELECT a FROM t") == ["[]", denied, "[]"]
    boss.execute("REVOKE SELECT ON public.t FROM ann")
    assert outcomes("EXECUTE p") == [denied] * 3


def test_a_session_leaves_a_dropped_role(sessions: Sessions) -> None:
    boss = sessions["boss"]
    sessions.user("bob")
    with psycopg.connect(sessions.dsn, autocommit=True) as other:
        other.execute("SET SESSION AUTHORIZATION bob")
        boss.execute("DROP ROLE bob")
        with pytest.raises(errors.UndefinedObject):
            other.execute("CREATE TABLE t (a int)")
        other.execute("RESET SESSION AUTHORIZATION")
        assert other.execute("SELECT session_user").fetchone() == ("materialize",)


VIEWS = (
    "SELECT grantor, grantee, table_name, privilege_type, is_grantable FROM information_schema.table_privileges "
    "WHERE table_name = 't'",
    "SELECT grantor, grantee, column_name, privilege_type, is_grantable FROM information_schema.column_privileges "
    "WHERE table_name = 't'",
    "SELECT grantee, role_name, is_grantable FROM information_schema.applicable_roles WHERE role_name !~ '^pg_'",
    "SELECT grantee, role_name, is_grantable FROM information_schema.administrable_role_authorizations "
    "WHERE role_name !~ '^pg_'",
)


def test_the_standards_views_show_options(sessions: Sessions, cleared: Sessions) -> None:
    for side in (sessions, cleared):
        for user in USERS:
            _ = side[user]
        side["boss"].execute("CREATE TABLE t (a int, b int); GRANT SELECT ON t TO ann WITH GRANT OPTION")
        side["boss"].execute("GRANT UPDATE (a) ON t TO ann WITH GRANT OPTION; GRANT bob TO ann WITH ADMIN OPTION")
        side["boss"].execute("GRANT cat TO bob")
        side["ann"].execute("GRANT SELECT ON t TO bob; GRANT UPDATE (a) ON t TO bob, PUBLIC")
    for query in VIEWS:
        assert sessions.outcome("boss", query) == expected(cleared.outcome("boss", query), cleared, sessions), query


def test_psql_shows_grantors_and_default_privileges(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int, b int); GRANT SELECT ON t TO ann WITH GRANT OPTION")
    ann.execute("GRANT SELECT (a) ON t TO PUBLIC")
    ann.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT INSERT ON TABLES TO PUBLIC")
    listed = psql(sessions.dsn, r"\dp t")
    assert "ann=r*/materialize" in listed
    assert "=r/ann" in listed
    lines = psql(sessions.dsn, r"\ddp").splitlines()
    assert [cell.strip() for cell in lines[3].split("|")] == ["ann", "public", "table", "=a/ann"]


@pytest.mark.long
def test_a_list_of_privileges_is_bounded(sessions: Sessions) -> None:
    boss = sessions["boss"]
    boss.execute("CREATE TABLE t (a int)")
    names = [f"many{number}" for number in range(ITEMS_MAX + 1)]
    boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
    sessions._roles += names
    boss.execute(f"GRANT SELECT ON t TO {', '.join(names[: ITEMS_MAX - 1])}".encode())  # and the owner's entry
    assert "54000 too many privileges for table t" in sessions.outcome("boss", f"GRANT SELECT ON t TO {names[-1]}")
    assert sessions.outcome("boss", f"GRANT INSERT ON t TO {names[0]}") == "GRANT"
    everyone = ", ".join(names)
    assert "54000 too many privileges for column" in sessions.outcome("boss", f"GRANT SELECT (a) ON t TO {everyone}")
    defaults = f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {everyone}"
    assert "54000 too many privileges for default privileges on new relations" in sessions.outcome("boss", defaults)


@pytest.mark.crash
def test_options_survive_kills(tmp_path: Path) -> None:
    server = server_without_spark(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as boss:
            boss.execute("CREATE TABLE t (a int); CREATE USER ann CREATEROLE; CREATE USER bob; CREATE ROLE readers")
            boss.execute(
                "GRANT SELECT ON t TO ann WITH GRANT OPTION; GRANT readers TO ann WITH ADMIN OPTION, SET FALSE"
            )
            boss.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO bob")
            boss.execute("REVOKE ALL ON t FROM materialize")
            server.kill()
        server = server_without_spark(tmp_path)
        with psycopg.connect(server.dsn, user="ann", autocommit=True) as ann:
            ann.execute("GRANT SELECT ON t TO bob; GRANT readers TO bob; CREATE ROLE made")
            with pytest.raises(errors.InsufficientPrivilege):
                ann.execute("SET ROLE readers")
            acl = ann.execute("SELECT relacl FROM pg_class WHERE relname = 't'").fetchone()
            assert acl == (["ann=r*/materialize", "bob=r/ann"],)
        with psycopg.connect(server.dsn, autocommit=True) as boss:
            boss.execute("CREATE TABLE u (a int)")
            assert boss.execute("SELECT has_table_privilege('bob', 'u', 'SELECT')").fetchone() == (True,)
            with pytest.raises(errors.DependentObjectsStillExist):
                boss.execute("REVOKE SELECT ON t FROM ann")
    finally:
        server.kill()
