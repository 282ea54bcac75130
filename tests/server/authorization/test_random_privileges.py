"""Random statements by roles that were granted random privileges, compared with PostgreSQL.

`test_grants.py` compares what GRANT and REVOKE change, and `test_column_privileges.py` which columns a query needs.
The statements here are of all kinds, also definitions, and the objects are in two schemas.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_server import ServerThread
from tests.server.authorization.test_column_privileges import shown as shown_outcome
from tests.server.authorization.test_grants import (
    GRANTEES,
    MEMBERS,
    OPTION,
    ROLE,
    ROLES,
    SHOWN,
    cleared_of_roles,
    expected,
    shown,
)
from tests.server.authorization.test_grants import cleared as cleared
from tests.server.authorization.test_roles import Sessions
from tests.server.authorization.test_roles import oracle as oracle

DEFINITIONS = (
    "CREATE SCHEMA public; CREATE SCHEMA s; GRANT USAGE ON SCHEMA public TO PUBLIC",
    *(f"CREATE ROLE {role}" for role in ROLES),
    "CREATE TABLE t (a int, b int); CREATE TABLE s.u (a int, b int); CREATE SEQUENCE n; CREATE SEQUENCE s.m",
    "CREATE VIEW v AS SELECT a FROM t; CREATE VIEW s.w AS SELECT a FROM s.u; CREATE INDEX i ON t (a)",
    "CREATE TYPE s.mood AS ENUM ('ok'); CREATE DOMAIN d AS int; ALTER TABLE t OWNER TO r1; ALTER VIEW s.w OWNER TO r2",
)
TABLE = st.sampled_from(("t", "s.u"))
RELATION = st.sampled_from(("t", "s.u", "v", "s.w"))
SEQUENCE = st.sampled_from(("n", "s.m"))
SCHEMA = st.sampled_from(("public", "s"))
TYPE = st.sampled_from(("s.mood", "d"))
OBJECT = st.one_of(
    TABLE.map("TABLE {}".format),
    st.sampled_from(("VIEW v", "VIEW s.w")),
    SEQUENCE.map("SEQUENCE {}".format),
    st.sampled_from(("SCHEMA s", "TYPE s.mood", "DOMAIN d")),
)
TABLE_PRIVILEGE = st.sampled_from(("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "ALL"))
ON = st.one_of(
    st.builds("{} ON {}".format, TABLE_PRIVILEGE, RELATION),
    st.builds("{} (a) ON {}".format, st.sampled_from(("SELECT", "INSERT", "UPDATE", "REFERENCES")), RELATION),
    st.builds("{} ON SEQUENCE {}".format, st.sampled_from(("USAGE", "SELECT", "UPDATE")), SEQUENCE),
    st.builds("{} ON SCHEMA {}".format, st.sampled_from(("USAGE", "CREATE", "ALL")), SCHEMA),
    st.builds("USAGE ON TYPE {}".format, TYPE),
)
GRANTS = st.one_of(
    *[st.builds("GRANT {} TO {}{}".format, ON, GRANTEES, OPTION)] * 4,
    st.builds("GRANT {} TO {} WITH INHERIT {}".format, MEMBERS, MEMBERS, st.sampled_from(("TRUE", "FALSE"))),
    st.builds("REVOKE {} FROM {} CASCADE".format, ON, GRANTEES),
    st.builds("REVOKE {} FROM {}".format, MEMBERS, MEMBERS),
    st.builds("ALTER {} OWNER TO {}".format, OBJECT, ROLE),
    st.builds("REASSIGN OWNED BY {} TO {}".format, ROLE, ROLE),
)
WORK = st.one_of(
    st.builds("EXPLAIN SELECT {} FROM {}".format, st.sampled_from(("1", "a", "*")), RELATION),
    st.builds("EXPLAIN INSERT INTO {} (a) VALUES (1) {}".format, TABLE, st.sampled_from(("", "RETURNING a"))),
    st.builds("EXPLAIN UPDATE {} SET a = {}".format, TABLE, st.sampled_from(("1", "a", "b", "DEFAULT"))),
    st.builds("EXPLAIN DELETE FROM {} {}".format, TABLE, st.sampled_from(("", "WHERE a = 1"))),
    st.builds("COPY {} TO STDOUT".format, TABLE),
    st.builds("TRUNCATE {} {}".format, TABLE, st.sampled_from(("", "RESTART IDENTITY"))),
    st.builds("SELECT {}('{}')".format, st.sampled_from(("nextval", "currval")), SEQUENCE),
    st.builds("SELECT setval('{}', 5)".format, SEQUENCE),
    st.builds("SELECT last_value FROM {}".format, SEQUENCE),
)
DEFINED = st.one_of(
    st.builds("CREATE TABLE {}.y (a {})".format, SCHEMA, st.sampled_from(("int", "d", "s.mood"))),
    st.builds("CREATE VIEW {}.y AS SELECT a FROM {}".format, SCHEMA, RELATION),
    st.builds("CREATE OR REPLACE VIEW v AS SELECT a FROM {}".format, TABLE),
    st.builds("CREATE SEQUENCE {}.y".format, SCHEMA),
    st.builds("CREATE TYPE {}.y AS ENUM ()".format, SCHEMA),
    st.builds("CREATE DOMAIN {}.y AS int".format, SCHEMA),
    st.builds("CREATE INDEX y ON {} (b)".format, TABLE),
    st.builds("CREATE TABLE {}.y (a int REFERENCES {} (a))".format, SCHEMA, TABLE),
    st.builds("CREATE TABLE {}.y (LIKE {})".format, SCHEMA, RELATION),
    st.builds("CREATE SCHEMA x1 AUTHORIZATION {}".format, ROLE),
    st.builds("DROP {} {}".format, OBJECT, st.sampled_from(("", "CASCADE"))),
    st.builds("DROP {} {}.y".format, st.sampled_from(("TABLE", "VIEW", "SEQUENCE", "TYPE")), SCHEMA),
    st.sampled_from(("DROP INDEX i", "ALTER INDEX i RENAME TO i2", "DROP SCHEMA x1", "ALTER SCHEMA s RENAME TO x2")),
    st.builds("ALTER TABLE {} ADD COLUMN z {}".format, TABLE, st.sampled_from(("int", "d", "s.mood"))),
    st.builds("ALTER TABLE {} {}".format, TABLE, st.sampled_from(("DROP COLUMN b", "ALTER b SET DEFAULT 1"))),
    st.builds(
        "ALTER TABLE {} {}".format, TABLE, st.sampled_from(("RENAME b TO c", "RENAME TO y", "ADD CHECK (a > 0)"))
    ),
    st.builds("ALTER {} SET SCHEMA {}".format, OBJECT.filter(lambda o: o != "SCHEMA s"), SCHEMA),
    st.builds("ALTER SEQUENCE {} RESTART".format, SEQUENCE),
    st.sampled_from(("ALTER TYPE s.mood ADD VALUE 'new'", "ALTER DOMAIN d SET NOT NULL", "ALTER VIEW v RENAME a TO z")),
    st.builds("COMMENT ON {} IS 'x'".format, OBJECT),
    st.builds("COMMENT ON COLUMN {}.a IS 'x'".format, RELATION),
    st.builds("DROP OWNED BY {}".format, ROLE),
    st.builds("CREATE ROLE r9".format),
)
ASKED = st.one_of(
    st.builds(
        "SELECT has_table_privilege('{}', '{}', '{}')".format,
        ROLE,
        RELATION,
        st.sampled_from(("SELECT", "INSERT WITH GRANT OPTION", "UPDATE, DELETE", "TRUNCATE")),
    ),
    st.builds(
        "SELECT has_column_privilege('{}', '{}', 'a', '{}')".format,
        ROLE,
        RELATION,
        st.sampled_from(("SELECT", "INSERT", "UPDATE WITH GRANT OPTION", "REFERENCES")),
    ),
    st.builds("SELECT has_any_column_privilege('{}', '{}', 'SELECT, UPDATE')".format, ROLE, RELATION),
    st.builds(
        "SELECT has_sequence_privilege('{}', '{}', '{}')".format,
        ROLE,
        SEQUENCE,
        st.sampled_from(("USAGE", "SELECT", "UPDATE")),
    ),
    st.builds(
        "SELECT has_schema_privilege('{}', '{}', '{}')".format,
        ROLE,
        SCHEMA,
        st.sampled_from(("USAGE", "CREATE", "USAGE WITH GRANT OPTION")),
    ),
    st.builds("SELECT has_type_privilege('{}', '{}', 'USAGE')".format, ROLE, TYPE),
    st.builds(
        "SELECT pg_has_role('{}', '{}', '{}')".format,
        ROLE,
        ROLE,
        st.sampled_from(("MEMBER", "USAGE", "SET", "USAGE WITH ADMIN OPTION")),
    ),
)
OWNERS = (
    "SELECT relname, nspname, pg_get_userbyid(relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
    "WHERE relkind IN ('r', 'v', 'S', 'i') AND nspname IN ('public', 's', 'x2')",
    "SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname ~ '^(public|s|x.)$'",
)
ACTOR = st.one_of(*[ROLE] * 4, st.just("boss"))
STEPS = st.one_of(
    *[st.tuples(st.one_of(st.just("boss"), ROLE), GRANTS)] * 2,
    *[st.tuples(ACTOR, WORK)] * 2,
    st.tuples(ACTOR, DEFINED),
    st.tuples(st.just("boss"), ASKED),
)


@pytest.mark.sql
@pytest.mark.timeout(900)
def test_random_statements_are_permitted_as_in_postgresql(cleared: Sessions, passing_server: ServerThread) -> None:
    oracle, ours = cleared, Sessions(passing_server.dsn())
    sides = (ours, oracle)

    @examples(8, derandomize=True)
    @given(st.lists(STEPS, min_size=8, max_size=20))
    def compare(script: list[tuple[str, str]]) -> None:
        for side in sides:
            cleared_of_roles(side)
            for definition in DEFINITIONS:
                side["boss"].execute(definition.encode())
        done = []
        for actor, statement in script:
            done.append(f"{actor}: {statement}")
            outcomes = []
            for side in sides:
                if actor != "boss":
                    side["boss"].execute(f"SET ROLE {actor}".encode())
                outcomes.append(shown_outcome(side.outcome("boss", statement), statement))
                side["boss"].execute("RESET ROLE")
            assert outcomes[0] == expected(outcomes[1], oracle, ours), "\n".join(done)
            if statement.startswith(("EXPLAIN", "SELECT", "COPY")):
                continue
            for query in (*SHOWN, *OWNERS):
                theirs = expected(shown(oracle, query), oracle, ours)
                assert shown(ours, query) == theirs, "\n".join((*done, query))

    try:
        compare()
    finally:
        for side in sides:
            cleared_of_roles(side)
        ours.close()
