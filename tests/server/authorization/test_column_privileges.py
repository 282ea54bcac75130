"""Privileges on columns, with clients of several roles, compared with PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.fix_server import ServerThread
from tests.server.authorization.test_roles import Sessions
from tests.server.authorization.test_roles import oracle as oracle
from tests.server.pg_catalog.test_pg_catalog import psql
from tests.server.slow_engine import PassingEngine

TABLES = """
boss: CREATE TABLE t (a int PRIMARY KEY, b int, c int)
boss: CREATE TABLE u (a int, x int)
"""

SCRIPTS = {
    "grant": """
boss: GRANT SELECT (a, b), INSERT (a), UPDATE (b), REFERENCES (a) ON t TO ann
boss: GRANT SELECT (nope) ON t TO ann
boss: GRANT DELETE (a) ON t TO ann
boss: GRANT USAGE (a) ON t TO ann
boss: GRANT frobnicate (a) ON t TO ann
boss: GRANT SELECT (a) ON SCHEMA public TO ann
boss: GRANT ALL (c) ON t TO bob
boss: GRANT ALL PRIVILEGES (c) ON u TO bob
boss: GRANT SELECT (a), DELETE ON u TO PUBLIC
ann: GRANT SELECT (a) ON t TO bob
bob: REVOKE SELECT (c) ON t FROM ann
ann: EXPLAIN DELETE FROM u
ann: EXPLAIN DELETE FROM u WHERE a = 1
ann: EXPLAIN DELETE FROM u WHERE x = 1
boss: SELECT has_column_privilege('ann', 't', 'a', 'SELECT'), has_column_privilege('ann', 't', 'c', 'SELECT')
boss: SELECT has_column_privilege('ann', 't', 1::int2, 'UPDATE'), has_column_privilege('ann', 't', 2::int2, 'UPDATE')
boss: SELECT has_column_privilege('ann', 't', 9::int2, 'UPDATE'), has_column_privilege('t', 'a', 'INSERT, DELETE')
boss: SELECT has_column_privilege('ann', 't', 'nope', 'UPDATE')
boss: SELECT has_column_privilege('ann', 't', NULL, 'UPDATE')
boss: SELECT has_any_column_privilege('ann', 't', 'SELECT'), has_any_column_privilege('bob', 'u', 'UPDATE')
boss: SELECT has_table_privilege('ann', 't', 'SELECT'), has_any_column_privilege('ann', 't', 'REFERENCES')
ann: SELECT has_column_privilege('t', 'a', 'SELECT'), has_any_column_privilege('u', 'INSERT')
boss: REVOKE SELECT ON t FROM ann
boss: SELECT has_any_column_privilege('ann', 't', 'SELECT'), has_any_column_privilege('ann', 't', 'INSERT')
boss: REVOKE ALL ON t FROM ann
boss: SELECT has_any_column_privilege('ann', 't', 'INSERT'), has_any_column_privilege('bob', 't', 'INSERT')
boss: GRANT SELECT ON t TO ann
boss: REVOKE SELECT (a) ON t FROM ann
ann: EXPLAIN SELECT a FROM t
boss: DROP ROLE bob
""",
    "alter": """
boss: GRANT SELECT (a, c) ON t TO ann
boss: ALTER TABLE t RENAME COLUMN c TO d
ann: SELECT d FROM t
ann: SELECT b FROM t
boss: ALTER TABLE t DROP COLUMN b
ann: SELECT a, d FROM t
boss: ALTER TABLE t ADD COLUMN e int
ann: SELECT e FROM t
ann: SELECT * FROM t
ann: EXPLAIN SELECT count(*) FROM t
boss: ALTER TABLE t DROP COLUMN d
boss: ALTER TABLE t ADD COLUMN d int
ann: SELECT d FROM t
boss: ALTER TABLE t ALTER COLUMN a TYPE bigint
ann: SELECT a FROM t
boss: ALTER TABLE t OWNER TO bob
bob: SELECT e FROM t
boss: DROP OWNED BY ann
ann: SELECT a FROM t
""",
    "details": """
boss: CREATE TABLE d (k int PRIMARY KEY, n int NOT NULL, c int CHECK (c < 10), s text DEFAULT 'secret')
boss: INSERT INTO d VALUES (1, 1, 1, 'x')
boss: GRANT INSERT ON d TO ann, bob
ann: INSERT INTO d (k, n) VALUES (1, 1)
ann: INSERT INTO d (k) VALUES (2)
ann: INSERT INTO d (k, n, c) VALUES (2, 2, 20)
ann: INSERT INTO d DEFAULT VALUES
boss: GRANT SELECT (c) ON d TO ann
ann: INSERT INTO d (k, n) VALUES (1, 1)
ann: INSERT INTO d (k) VALUES (2)
ann: INSERT INTO d DEFAULT VALUES
boss: GRANT SELECT (k) ON d TO ann
ann: INSERT INTO d (k, n) VALUES (1, 1)
boss: GRANT SELECT ON d TO bob
bob: INSERT INTO d (k, n) VALUES (1, 1)
bob: INSERT INTO d (k) VALUES (2)
boss: INSERT INTO d (k, n, c) VALUES (2, 2, 20)
""",
    "rows": """
boss: INSERT INTO t VALUES (1, 2, 3)
boss: GRANT SELECT (a), INSERT (a, b), UPDATE (b) ON t TO ann
ann: SELECT a FROM t
ann: EXPLAIN SELECT count(*) FROM t
ann: SELECT * FROM t
ann: INSERT INTO t (a, b) VALUES (2, 2)
ann: INSERT INTO t (a, c) VALUES (3, 2)
ann: EXPLAIN INSERT INTO t (a) VALUES (3) RETURNING a
ann: EXPLAIN INSERT INTO t (a) VALUES (4) RETURNING b
ann: INSERT INTO t VALUES (5, 6)
ann: INSERT INTO t VALUES (5, 6, 7)
ann: SELECT a FROM t FOR UPDATE
bob: SELECT a FROM t FOR UPDATE
boss: GRANT SELECT ON t TO bob
bob: SELECT a FROM t FOR UPDATE
bob: SELECT a FROM t FOR KEY SHARE
bob: EXPLAIN SELECT a FROM t FOR UPDATE
bob: SELECT a FROM t
ann: EXPLAIN UPDATE t SET b = 3
ann: EXPLAIN UPDATE t SET b = 3 WHERE a = 1
ann: EXPLAIN UPDATE t SET b = a WHERE a = 1 RETURNING a
ann: EXPLAIN UPDATE t SET b = b + 1
ann: EXPLAIN UPDATE t SET c = 1
ann: EXPLAIN INSERT INTO t (a, b) VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 9
ann: EXPLAIN INSERT INTO t (a, b) VALUES (1, 1) ON CONFLICT DO NOTHING
ann: EXPLAIN DELETE FROM t WHERE a = 1
ann: COPY t (b) TO STDOUT
ann: COPY t TO STDOUT
ann: COPY t (c) FROM STDIN
boss: CREATE VIEW v AS SELECT a, b FROM t
boss: GRANT SELECT (a) ON v TO ann
ann: SELECT a FROM v
ann: SELECT b FROM v
boss: GRANT CREATE ON SCHEMA public TO ann
ann: CREATE VIEW w AS SELECT a FROM t
ann: CREATE VIEW wb AS SELECT a FROM t WHERE b = 1
ann: SELECT * FROM w
ann: SELECT * FROM wb
boss: SELECT * FROM w
boss: SELECT * FROM wb
ann: CREATE TABLE copied AS SELECT a FROM t
ann: CREATE TABLE copied_too AS SELECT c FROM t
""",
}


@pytest.fixture
def sessions(passing_server: ServerThread) -> Iterator[Sessions]:
    """Without Spark: statements that compute are only explained."""
    sessions = Sessions(passing_server.dsn())
    yield sessions
    sessions.close()


def shown(outcome: str, statement: str) -> str:
    """The outcome; only whether it succeeded for an EXPLAIN or COPY."""
    succeeded = not outcome[:5].isalnum() or outcome.startswith(("SELECT", "COPY"))
    return "ok" if succeeded and statement.startswith(("EXPLAIN", "COPY")) else outcome


@pytest.mark.parametrize("name", SCRIPTS)
def test_column_privileges_have_postgresqls_outcomes(name: str, sessions: Sessions, oracle: Sessions) -> None:
    for user in ("ann", "bob"):
        _ = sessions[user], oracle[user]
    different = []
    for line in (TABLES.strip() + SCRIPTS[name]).strip().splitlines():
        user, _, statement = line.partition(": ")
        ours, theirs = (shown(side.outcome(user, statement), statement) for side in (sessions, oracle))
        if ours != theirs:
            different.append(f"{line}\n    ours   {ours}\n    theirs {theirs}")
    assert not different, "\n".join(different)


COLUMNS = st.sampled_from(("a", "b", "c"))
QUERIES = st.one_of(
    st.builds("SELECT {} FROM t WHERE {} = 1".format, COLUMNS, COLUMNS),
    st.builds("SELECT {} AS z FROM t ORDER BY {}".format, COLUMNS, COLUMNS),
    st.builds("SELECT {0}, count(*) FROM t GROUP BY {0} HAVING max({1}) > 1".format, COLUMNS, COLUMNS),
    st.builds("SELECT s.{0} FROM (SELECT {0}, {1} FROM t) s".format, COLUMNS, COLUMNS),
    st.builds(
        "WITH s AS (SELECT {0} FROM t) SELECT * FROM s WHERE {0} IN (SELECT {1} FROM t)".format, COLUMNS, COLUMNS
    ),
    st.builds("SELECT EXISTS (SELECT FROM t WHERE {} = u.x) FROM u".format, COLUMNS),
    st.builds("SELECT u.x FROM u JOIN t ON u.x = t.{}".format, COLUMNS),
    st.builds("SELECT x FROM u, LATERAL (SELECT {} FROM t WHERE t.{} = u.x) l".format, COLUMNS, COLUMNS),
    st.builds("SELECT {} FROM t UNION SELECT {} FROM t".format, COLUMNS, COLUMNS),
    st.builds("SELECT rank() OVER (PARTITION BY {} ORDER BY {}) FROM t".format, COLUMNS, COLUMNS),
    st.builds("SELECT DISTINCT ON ({}) {} FROM t".format, COLUMNS, COLUMNS),
    st.builds("SELECT sum({}) FILTER (WHERE {} > 1) FROM t".format, COLUMNS, COLUMNS),
    st.builds("SELECT {} FROM t WHERE a = 1 FOR UPDATE".format, COLUMNS),
    st.sampled_from(
        (
            "SELECT count(*) FROM t",
            "SELECT * FROM t",
            "TABLE t",
            "SELECT t FROM t",
            "SELECT t.* FROM t",
            "SELECT count(t) FROM t",
            "SELECT row_to_json(t) FROM t",
            "SELECT 1 FROM t",
            "SELECT x FROM u JOIN t USING (a)",
            "SELECT x FROM u NATURAL JOIN t",
            "SELECT j.x FROM (u JOIN t USING (a)) AS j",
            "SELECT u.* FROM u LEFT JOIN t ON true",
            "SELECT (t).b FROM t",
            "SELECT t.a IS NULL FROM t",
            "SELECT t IS NULL FROM t",
            "SELECT * FROM v",
            "SELECT b FROM v",
            "SELECT count(*) FROM v",
            "SELECT (SELECT b FROM v LIMIT 1)",
        )
    ),
)
WRITES = st.one_of(
    st.builds("UPDATE t SET {} = 1 WHERE {} = 2".format, COLUMNS, COLUMNS),
    st.builds("UPDATE t SET {} = {}".format, COLUMNS, COLUMNS),
    st.builds("UPDATE t SET {} = 1".format, COLUMNS),
    st.builds("UPDATE t SET (a, b) = (SELECT x, a FROM u WHERE x = t.{})".format, COLUMNS),
    st.builds("UPDATE t SET {} = u.x FROM u WHERE u.a = 1 RETURNING t.{}".format, COLUMNS, COLUMNS),
    st.builds("UPDATE t SET {} = DEFAULT RETURNING 1".format, COLUMNS),
    st.builds("DELETE FROM t WHERE {} = 1".format, COLUMNS),
    st.builds("DELETE FROM t USING u WHERE t.{} = u.x RETURNING u.a".format, COLUMNS),
    st.just("DELETE FROM t"),
    st.builds("INSERT INTO t ({}) VALUES (1)".format, COLUMNS),
    st.builds("INSERT INTO t ({}) SELECT {} FROM t".format, COLUMNS, COLUMNS),
    st.builds("INSERT INTO t ({}) VALUES (1) RETURNING {}".format, COLUMNS, COLUMNS),
    st.sampled_from(("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1, 2, 3)", "INSERT INTO t DEFAULT VALUES")),
    st.builds("INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET {} = 1".format, COLUMNS),
    st.builds("INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET {} = excluded.{}".format, COLUMNS, COLUMNS),
    st.builds("INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET {} = t.{}".format, COLUMNS, COLUMNS),
    st.builds("INSERT INTO t (a) VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING RETURNING {}".format, COLUMNS),
    st.just("INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING"),
    st.just("INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO NOTHING"),
    st.builds(
        "MERGE INTO t USING u ON t.{} = u.x WHEN MATCHED THEN UPDATE SET {} = u.a "
        "WHEN NOT MATCHED THEN INSERT ({}) VALUES (1)".format,
        COLUMNS,
        COLUMNS,
        COLUMNS,
    ),
    st.builds("MERGE INTO t USING u ON u.a = t.a WHEN MATCHED AND t.{} = 1 THEN DELETE".format, COLUMNS),
)
GRANTS = st.lists(
    st.one_of(
        st.builds("SELECT ({})".format, COLUMNS),
        st.builds("INSERT ({})".format, COLUMNS),
        st.builds("UPDATE ({})".format, COLUMNS),
        st.just("DELETE"),
        st.sampled_from(("SELECT (a)", "SELECT (a, b)", "INSERT (a)", "SELECT", "UPDATE", "INSERT")),
    ),
    min_size=1,
    max_size=4,
)


def test_random_statements_need_postgresqls_privileges(oracle: Sessions, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    ours = Sessions(server.dsn())
    for side in (ours, oracle):
        for statement in (
            "CREATE TABLE t (a int PRIMARY KEY, b int, c int)",
            "CREATE TABLE u (a int, x int)",
            "CREATE USER ann",
            "CREATE USER own",
            "CREATE VIEW v AS SELECT a, b FROM t WHERE c > 1",
            "ALTER VIEW v OWNER TO own",
            "GRANT SELECT ON u, v TO ann",
        ):
            side["boss"].execute(statement)
        side._roles += ["ann", "own"]
        side._open["ann"] = psycopg.connect(side.dsn, user="ann", autocommit=True)

    @examples(60)
    @given(GRANTS, st.lists(QUERIES | WRITES, min_size=1, max_size=6), st.sampled_from(("ann", "PUBLIC", "own")))
    def compare(grants: list[str], statements: list[str], grantee: str) -> None:
        for side in (ours, oracle):
            side["boss"].execute("REVOKE ALL ON t FROM ann, own, PUBLIC")
            side["boss"].execute(f"GRANT {', '.join(grants)} ON t TO {grantee}")
        for statement in statements:
            outcomes = [shown(side.outcome("ann", f"EXPLAIN {statement}"), "EXPLAIN") for side in (ours, oracle)]
            assert outcomes[0] == outcomes[1], statement

    try:
        compare()
    finally:
        ours.close()
        server.stop()


def test_catalogs_show_column_privileges(sessions: Sessions, oracle: Sessions) -> None:
    queries = (
        "SELECT relname, array_to_string(relacl, ',') FROM pg_class WHERE relname IN ('t', 'u')",
        "SELECT attname, array_to_string(attacl, ',') FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0",
        "SELECT table_name, column_name, grantee, privilege_type, is_grantable "
        "FROM information_schema.column_privileges WHERE table_name IN ('t', 'u')",
        "SELECT table_name, grantee, privilege_type FROM information_schema.table_privileges "
        "WHERE table_name IN ('t', 'u')",
    )
    for side in (sessions, oracle):
        for user in ("ann", "bob"):
            _ = side[user]
        for line in TABLES.strip().splitlines():
            side["boss"].execute(line.removeprefix("boss: ").encode())
        side["boss"].execute("GRANT SELECT (a), UPDATE (a, b) ON t TO ann; GRANT SELECT (a) ON t TO bob")
        side["boss"].execute("GRANT INSERT, DELETE ON u TO bob; GRANT SELECT (x) ON u TO PUBLIC")
    for query in queries:
        ours, theirs = (side.outcome("boss", query) for side in (sessions, oracle))
        assert ours == theirs.replace("postgres", "materialize").replace("arwdDxt/", "arwdDxtm/"), query


def test_psql_shows_column_privileges(sessions: Sessions) -> None:
    boss = sessions["boss"]
    sessions.user("ann")
    boss.execute("CREATE TABLE t (a int, b int)")
    boss.execute("GRANT SELECT (a), UPDATE (a) ON t TO ann")
    shown = psql(sessions.dsn, r"\dp t")
    assert "a:" in shown
    assert "materialize=arwdDxtm/materialize" not in shown, "default privileges are not shown"
    assert "ann=rw/materialize" in shown


def test_column_privileges_survive_a_restart(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as boss:
        boss.execute(
            "CREATE TABLE t (a int, b int, c int); CREATE USER ann; GRANT SELECT (a, c), INSERT (b) ON t TO ann"
        )
        boss.execute("ALTER TABLE t DROP COLUMN b")
    server.stop()
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), user="ann", autocommit=True) as ann:
            assert ann.execute("SELECT a, c FROM t").fetchall() == []
            with pytest.raises(errors.InsufficientPrivilege):
                ann.execute("INSERT INTO t (a) VALUES (1)")
    finally:
        server.stop()


def test_subscribe_needs_the_columns_that_it_names(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2); GRANT SELECT (a) ON t TO ann")
    for query in ("t", "(SELECT b FROM t)", "(SELECT a FROM t WHERE b = 2)"):
        with pytest.raises(errors.InsufficientPrivilege):
            ann.execute(f"SUBSCRIBE {query}".encode())
    with ann.transaction():
        ann.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT a FROM t)")
        assert [row[2:] for row in ann.execute("FETCH 1 c").fetchall()] == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        # PostgreSQL 16 does not have RETURNING here.
        "EXPLAIN MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a) VALUES (u.a) RETURNING t.b",
        "EXPLAIN MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a) VALUES (u.a) RETURNING *",
        "WITH x AS (INSERT INTO t (a) VALUES (1) RETURNING b) SELECT * FROM x",
        "WITH x AS (INSERT INTO t (b) VALUES (1)) SELECT 1",
        "WITH x AS (INSERT INTO t (a) VALUES (1) RETURNING a) DELETE FROM u USING x WHERE u.a = x.a",
    ],
)
def test_returning_and_writes_in_with_need_privileges(sessions: Sessions, statement: str) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE u (a int, x int)")
    boss.execute("GRANT SELECT (a), INSERT (a) ON t TO ann; GRANT SELECT ON u TO ann")
    with pytest.raises(errors.InsufficientPrivilege):
        ann.execute(statement.encode())
    assert boss.execute("SELECT * FROM t").fetchall() == []


def test_writes_in_with_need_no_other_privileges(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("CREATE TABLE t (a int PRIMARY KEY, b int); GRANT SELECT (a), INSERT (a) ON t TO ann")
    query = b"WITH x AS (INSERT INTO t (a) VALUES (1) RETURNING a) SELECT a FROM x"
    assert ann.execute(query).fetchall() == [(1,)]
