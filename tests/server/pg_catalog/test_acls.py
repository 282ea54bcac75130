"""acldefault, aclexplode, and the standard's views of roles and privileges, compared with a real PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread
from tests.server.authorization.test_roles import Sessions
from tests.server.authorization.test_roles import oracle as oracle

OBJECTS = """
CREATE TABLE t (a int, b int);
CREATE TABLE untouched (a int);
CREATE VIEW v AS SELECT a FROM t;
CREATE SEQUENCE n;
CREATE SCHEMA s;
GRANT SELECT ON t TO ann WITH GRANT OPTION;
GRANT INSERT, DELETE ON t TO PUBLIC;
GRANT UPDATE (a), REFERENCES (a) ON t TO bob WITH GRANT OPTION;
GRANT TRIGGER ON v TO "Odd ""one";
GRANT USAGE ON SEQUENCE n TO bob;
GRANT CREATE ON SCHEMA s TO ann;
GRANT bob TO cat WITH ADMIN OPTION;
GRANT "Odd ""one" TO ann;
"""
GRANTEE = "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END"
LISTS = (
    f"SELECT relname, pg_get_userbyid(a.grantor), {GRANTEE}, privilege_type, is_grantable "
    "FROM pg_class c, aclexplode(c.relacl) a WHERE relname IN ('t', 'v', 'n')",
    f"SELECT relname, {GRANTEE}, x.kind FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS x(b, grantee, kind) "
    "WHERE relname IN ('t', 'v')",
    "SELECT c.relname, x.privilege_type FROM pg_class c LEFT JOIN LATERAL pg_catalog.aclexplode(c.relacl) x ON true "
    "WHERE relname IN ('t', 'untouched')",
    f"SELECT relname, {GRANTEE}, x.privilege_type, x.is_grantable FROM (SELECT relname, "
    "(aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))).* FROM pg_class c "
    "WHERE relname IN ('t', 'untouched')) x",
    f"SELECT {GRANTEE}, (privilege_type) FROM (SELECT (aclexplode(nspacl)).grantee AS grantee, "
    "(aclexplode(nspacl)).privilege_type FROM pg_namespace WHERE nspname = 's') x",
    f"SELECT attname, {GRANTEE}, x.privilege_type, x.is_grantable FROM pg_attribute a, aclexplode(a.attacl) x "
    "WHERE attrelid = 't'::regclass",
    "SELECT acldefault('s', 10), acldefault('n', 10), acldefault('F', 77), acldefault('c', 10), acldefault(NULL, 10)",
    "SELECT acldefault('f', 10), acldefault('l', 10), acldefault('L', 10), acldefault('p', 10), acldefault('t', 10)",
    "SELECT acldefault('S', oid), acldefault('T', oid) FROM pg_roles WHERE rolname = 'Odd \"one'",
    "SELECT * FROM aclexplode(acldefault('s', 10))",
    "SELECT relname, array_to_string(acldefault('r', relowner), ' ') FROM pg_class WHERE relname = 't'",
    "SELECT count(*) FROM aclexplode(NULL)",
    "SELECT makeaclitem(oid, 10, 'SELECT, insert,insert', true), makeaclitem(0, oid, 'Temp', false), "
    "makeaclitem(10, oid, 'TEMPORARY', NULL) FROM pg_roles WHERE rolname = 'Odd \"one'",
    "SELECT makeaclitem(10, 10, 'UPDATE', false)",
)
VIEWS = (
    "SELECT * FROM information_schema.enabled_roles WHERE role_name !~ '^pg_'",
    "SELECT * FROM information_schema.applicable_roles WHERE role_name !~ '^pg_'",
    "SELECT * FROM information_schema.administrable_role_authorizations WHERE role_name !~ '^pg_'",
    *(
        f"SELECT * FROM information_schema.{view} WHERE table_schema IN ('public', 's')"
        for view in ("table_privileges", "role_table_grants", "column_privileges", "role_column_grants")
    ),
    "SELECT grantee, privilege_type FROM information_schema.table_privileges WHERE table_name = 'pg_class' "
    "AND grantee = 'PUBLIC'",
)


@pytest.fixture
def sides(passing_server: ServerThread, oracle: Sessions) -> Iterator[tuple[Sessions, Sessions]]:
    sides = Sessions(passing_server.dsn()), oracle
    for side in sides:
        for user in ("ann", "bob", "cat"):
            _ = side[user]
        side.role('CREATE ROLE "Odd ""one"', 'Odd "one')
        side["boss"].execute(OBJECTS.encode())
        side["ann"].execute("GRANT SELECT ON t TO bob")
    yield sides
    sides[0]["boss"].execute("DROP TABLE untouched, t CASCADE; DROP SEQUENCE n; DROP SCHEMA s")
    sides[0].close()


def rows(side: Sessions, user: str, query: str) -> list[tuple[str, ...]]:
    """The rows as texts, sorted, with Tidewire's names. Without MAINTAIN, which PostgreSQL 16 lacks."""

    def text(value: object) -> str:
        named = re.sub(r"\bpostgres\b", "materialize", str(value)).replace(side.database, "materialize")
        return named.replace("=arwdDxtm/", "=arwdDxt/")

    found = side[user].execute(query.encode()).fetchall()
    return sorted(tuple(map(text, row)) for row in found if "MAINTAIN" not in row)


@pytest.mark.parametrize("query", LISTS)
def test_lists_of_privileges_are_those_of_postgresql(query: str, sides: tuple[Sessions, Sessions]) -> None:
    ours, theirs = (rows(side, "boss", query) for side in sides)
    assert ours == theirs
    assert ours


def test_each_role_sees_its_roles_and_privileges_as_in_postgresql(sides: tuple[Sessions, Sessions]) -> None:
    for user in ("boss", "ann", "bob", "cat"):
        for query in VIEWS:
            ours, theirs = (rows(side, user, query) for side in sides)
            assert ours == theirs, (user, query)


def test_a_role_sees_what_it_has_after_set_role(sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        side["cat"].execute("SET ROLE bob")
    for query in VIEWS:
        ours, theirs = (rows(side, "cat", query) for side in sides)
        assert ours == theirs, query


SHOWN = {
    "tables": "table_name, table_type",
    "columns": "table_name, column_name",
    "views": "table_name, view_definition IS NULL",
    "sequences": "sequence_name",
    "table_constraints": "table_name, constraint_type",
    "check_constraints": "check_clause",
    "key_column_usage": "table_name, column_name, constraint_name",
    "constraint_column_usage": "table_name, column_name, constraint_name",
    "constraint_table_usage": "table_name, constraint_name",
    "referential_constraints": "constraint_name",
    "domains": "domain_name",
    "domain_constraints": "domain_name, constraint_name",
}
SCHEMAS_OF = {
    **dict.fromkeys(("domains", "domain_constraints"), "domain"),
    **dict.fromkeys(("check_constraints", "referential_constraints"), "constraint"),
    "sequences": "sequence",
}
"""The prefix of the column with the schema, if it is not `table`."""


@pytest.mark.parametrize("user", ["boss", "ann", "bob", "cat"])
def test_each_role_sees_the_objects_that_postgresql_shows(user: str, sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        boss = side["boss"]
        boss.execute("CREATE TABLE p (a int PRIMARY KEY, b int NOT NULL UNIQUE, c int CHECK (c > 0))")
        boss.execute(
            "ALTER TABLE p ADD CHECK (a > 0) NOT VALID; CREATE TABLE f (a int PRIMARY KEY REFERENCES p, b int)"
        )
        boss.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN open AS int CHECK (VALUE > 1)")
        boss.execute("REVOKE USAGE ON TYPE positive FROM PUBLIC; GRANT USAGE ON TYPE positive TO bob")
        boss.execute("CREATE SEQUENCE m OWNED BY p.c; GRANT SELECT (a), UPDATE (b) ON p TO ann")
        boss.execute("GRANT SELECT ON p TO bob; GRANT INSERT (a) ON f TO bob; ALTER TABLE f OWNER TO bob")
    different = []
    for view, columns in SHOWN.items():
        schema = SCHEMAS_OF.get(view, "table")
        query = f"SELECT {columns} FROM information_schema.{view} WHERE {schema}_schema IN ('public', 's')"
        ours, theirs = (side.outcome(user, query) for side in sides)
        if ours != theirs:
            different.append(f"{query}\n    ours   {ours}\n    theirs {theirs}")
    schemas = "SELECT schema_name FROM information_schema.schemata WHERE schema_name IN ('s', 'public')"
    assert sides[0].outcome(user, schemas) == sides[1].outcome(user, schemas)
    sides[0]["boss"].execute("DROP TABLE p, f CASCADE; DROP DOMAIN positive, open")
    assert not different, "\n".join(different)


RELATIONS = "relname IN ('t', 'untouched', 'v', 'n')"
ASKED = (
    *(
        f"SELECT relname, has_table_privilege({of}, '{wanted}') FROM pg_class WHERE relname IN ('t', 'untouched', 'v')"
        for of in ("oid", "'ann', oid", "current_user, oid", "10, oid")
        for wanted in ("SELECT", "insert, UPDATE", "SELECT WITH GRANT OPTION", "TRIGGER")
    ),
    "SELECT tablename, has_table_privilege(schemaname || '.' || tablename, 'SELECT') FROM pg_tables "
    "WHERE schemaname = 'public'",
    "SELECT has_table_privilege('bob', quote_ident(relname), 'DELETE') FROM pg_class WHERE relname IN ('t', 'v')",
    f"SELECT relname, has_any_column_privilege(oid, 'UPDATE') FROM pg_class WHERE {RELATIONS} AND relkind <> 'S'",
    "SELECT attname, has_column_privilege(attrelid, attnum, 'UPDATE'), "
    "has_column_privilege(attrelid, attname, 'SELECT'), "
    "has_column_privilege('bob', attrelid::regclass::text, attname, 'REFERENCES WITH GRANT OPTION') "
    "FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0",
    "SELECT relname, has_sequence_privilege(oid, 'USAGE') FROM pg_class WHERE relname = 'n'",
    "SELECT nspname, has_schema_privilege(oid, 'USAGE'), has_schema_privilege(nspname, 'CREATE'), "
    "has_schema_privilege('ann', nspname, 'CREATE') FROM pg_namespace WHERE nspname IN ('s', 'pg_catalog')",
    "SELECT has_database_privilege(datname, 'CONNECT'), has_database_privilege(oid, 'CREATE') FROM pg_database "
    "WHERE datname = current_database()",
    "SELECT has_database_privilege(datname, 'TEMP'), has_database_privilege(datname, 'TEMPORARY') FROM pg_database "
    "WHERE datname = current_database()",
    "SELECT DISTINCT has_function_privilege(p.oid, 'EXECUTE'), has_language_privilege(l.oid, 'USAGE') "
    "FROM pg_proc p, pg_language l WHERE proname = 'lower' AND lanname = 'sql'",
    "SELECT typname, has_type_privilege(oid, 'USAGE') FROM pg_type WHERE typname IN ('mood', 'positive')",
    "SELECT rolname, pg_has_role(oid, 'USAGE'), pg_has_role(rolname, 'MEMBER'), pg_has_role('ann', oid, 'USAGE, SET') "
    "FROM pg_roles WHERE rolname !~ '^pg_'",
    "SELECT has_table_privilege('ann', 99999999, 'SELECT') FROM pg_class WHERE relname = 'pg_class'",
    "SELECT has_column_privilege('ann', oid, 'nothing', 'SELECT') FROM pg_class WHERE relname = 'nothing'",
    "SELECT has_table_privilege(oid, 'nonsense') FROM pg_class",
    "SELECT has_table_privilege('nobody_at_all', oid, 'SELECT') FROM pg_class",
)


@pytest.mark.parametrize("user", ["boss", "ann", "bob", "cat"])
def test_privileges_on_columns_of_catalogs_are_those_of_postgresql(user: str, sides: tuple[Sessions, Sessions]) -> None:
    for side in sides:
        side["boss"].execute("CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN positive AS int")
        side["boss"].execute("REVOKE USAGE ON TYPE positive FROM PUBLIC")
        side["boss"].execute("GRANT USAGE ON TYPE positive TO bob; ALTER TABLE untouched OWNER TO bob")
        side["boss"].execute("REVOKE SELECT ON untouched FROM bob")
    different = []
    for query in ASKED:
        ours, theirs = (side.outcome(user, query).replace("postgres", "materialize") for side in sides)
        if ours != theirs:
            different.append(f"{query}\n    ours   {ours}\n    theirs {theirs}")
    sides[0]["boss"].execute("DROP TYPE mood; DROP DOMAIN positive")
    assert not different, "\n".join(different)


def test_the_role_and_the_privileges_are_constants(passing_server: ServerThread) -> None:
    queries = (
        "SELECT has_table_privilege(pg_get_userbyid(relowner), oid, 'SELECT') FROM pg_class",
        "SELECT has_table_privilege(oid, relname) FROM pg_class",
        "SELECT pg_has_role(oid, 'MEMBER WITH ADMIN OPTION') FROM pg_roles",
    )
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        for query in queries:
            with pytest.raises(errors.FeatureNotSupported, match=r"(is|are) not a constant"):
                connection.execute(query.encode())
        with pytest.raises(errors.UndefinedFunction):
            connection.execute("SELECT has_table_privilege(oid) FROM pg_class")
