"""Privileges of writes to views, as in PostgreSQL: of the role on the view, and of the view's owner on its base."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_server import ServerThread
from tests.server.authorization.test_column_privileges import shown
from tests.server.authorization.test_roles import Sessions
from tests.server.authorization.test_roles import oracle as oracle
from tests.server.slow_engine import PassingEngine

VIEWS = """
boss: CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b < 100), c int NOT NULL DEFAULT 7)
boss: CREATE TABLE u (x int)
boss: CREATE VIEW v AS SELECT a AS k, b, c, a + b AS s FROM t WHERE c > 1
boss: ALTER VIEW v OWNER TO own
boss: CREATE VIEW w AS SELECT b, k AS id FROM v
boss: ALTER VIEW w OWNER TO top
boss: CREATE VIEW q AS SELECT a, b FROM t WHERE a IN (SELECT x FROM u)
boss: ALTER VIEW q OWNER TO own
"""

SCRIPTS = {
    "role": """
boss: GRANT ALL ON t TO own
ann: EXPLAIN DELETE FROM v
ann: INSERT INTO v (k, b) VALUES (1, 2)
boss: GRANT INSERT (k), UPDATE (b), SELECT (k) ON v TO ann
ann: INSERT INTO v (k) VALUES (1)
ann: INSERT INTO v (k, b) VALUES (2, 2)
ann: EXPLAIN INSERT INTO v (k) VALUES (3) RETURNING k
ann: EXPLAIN INSERT INTO v (k) VALUES (3) RETURNING s
ann: EXPLAIN UPDATE v SET b = 1
ann: EXPLAIN UPDATE v SET b = 1 WHERE k = 1
ann: EXPLAIN UPDATE v SET b = 1 WHERE b = 1
ann: EXPLAIN UPDATE v SET b = s
ann: EXPLAIN UPDATE v SET k = 1
ann: EXPLAIN DELETE FROM v
ann: INSERT INTO t (a) VALUES (9)
ann: SELECT a FROM t
boss: GRANT DELETE ON v TO ann
ann: EXPLAIN DELETE FROM v
ann: EXPLAIN DELETE FROM v WHERE k = 1
ann: EXPLAIN DELETE FROM v WHERE c = 1
boss: REVOKE ALL ON v FROM ann
ann: EXPLAIN DELETE FROM v
""",
    "owner": """
boss: GRANT ALL ON v TO ann
ann: INSERT INTO v (k) VALUES (1)
boss: INSERT INTO v (k) VALUES (1)
boss: GRANT INSERT (a) ON t TO own
ann: INSERT INTO v (k) VALUES (1)
ann: INSERT INTO v (k, b) VALUES (2, 2)
boss: INSERT INTO v (k, b) VALUES (2, 2)
ann: EXPLAIN INSERT INTO v (k) VALUES (3) RETURNING k
boss: GRANT SELECT (a, b, c) ON t TO own
ann: EXPLAIN INSERT INTO v (k) VALUES (3) RETURNING k
ann: EXPLAIN UPDATE v SET b = 1
boss: GRANT UPDATE (b) ON t TO own
ann: EXPLAIN UPDATE v SET b = 1
ann: EXPLAIN DELETE FROM v
boss: GRANT DELETE ON t TO own
boss: REVOKE SELECT (c) ON t FROM own
ann: EXPLAIN DELETE FROM v
ann: EXPLAIN DELETE FROM v WHERE k = 1
boss: EXPLAIN DELETE FROM v WHERE k = 1
""",
    "chain": """
boss: GRANT ALL ON t TO own
boss: GRANT INSERT, UPDATE ON w TO ann
ann: INSERT INTO w VALUES (1, 1)
boss: GRANT INSERT (k) ON v TO top
ann: INSERT INTO w VALUES (1, 1)
ann: INSERT INTO w (id) VALUES (1)
boss: GRANT INSERT (b) ON v TO top
ann: INSERT INTO w VALUES (2, 2)
boss: REVOKE INSERT ON t FROM own
ann: INSERT INTO w VALUES (3, 3)
ann: EXPLAIN UPDATE w SET b = 1
boss: GRANT UPDATE ON v TO top
ann: EXPLAIN UPDATE w SET b = 1
ann: EXPLAIN UPDATE w SET b = b
boss: GRANT SELECT ON w TO ann
ann: EXPLAIN UPDATE w SET b = b
boss: GRANT SELECT ON v TO top
ann: EXPLAIN UPDATE w SET b = b
""",
    "details": """
boss: GRANT ALL ON t TO own
boss: GRANT INSERT ON v TO ann
ann: INSERT INTO v (k, b) VALUES (1, 1)
ann: INSERT INTO v (k, b) VALUES (1, 1)
ann: INSERT INTO v (k, b) VALUES (2, 200)
ann: INSERT INTO v (k, c) VALUES (2, NULL)
boss: GRANT SELECT ON v TO ann
ann: INSERT INTO v (k, b) VALUES (2, 200)
boss: GRANT SELECT (c) ON t TO ann
ann: INSERT INTO v (k, b) VALUES (2, 200)
own: INSERT INTO v (k, b) VALUES (2, 200)
ann: INSERT INTO v (k, s) VALUES (2, 200)
boss: CREATE VIEW o AS SELECT a, b FROM t WHERE b > 1 AND c = 7 WITH CHECK OPTION
boss: ALTER VIEW o OWNER TO own
boss: GRANT INSERT ON o TO top
top: INSERT INTO o VALUES (5, 1)
top: INSERT INTO o (b) VALUES (1)
boss: GRANT SELECT (a) ON t TO top
top: INSERT INTO o (b, a) VALUES (1, 6)
boss: GRANT SELECT ON t TO top
top: INSERT INTO o VALUES (5, 1)
top: INSERT INTO o VALUES (5, 2)
""",
}


@pytest.fixture
def sessions(passing_server: ServerThread) -> Iterator[Sessions]:
    """Without Spark: statements that compute are only explained."""
    sessions = Sessions(passing_server.dsn())
    yield sessions
    sessions.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_writes_to_views_have_postgresqls_outcomes(name: str, sessions: Sessions, oracle: Sessions) -> None:
    for user in ("ann", "own", "top"):
        _ = sessions[user], oracle[user]
    different = []
    for line in (VIEWS.strip() + SCRIPTS[name]).strip().splitlines():
        user, _, statement = line.partition(": ")
        ours, theirs = (shown(side.outcome(user, statement), statement) for side in (sessions, oracle))
        if ours != theirs:
            different.append(f"{line}\n    ours   {ours}\n    theirs {theirs}")
    assert not different, "\n".join(different)


COLUMNS = st.sampled_from(("k", "b", "c", "s"))
PLAIN = st.sampled_from(("k", "b", "c"))
WRITES = st.one_of(
    st.builds("UPDATE v SET {} = 1 WHERE {} = 2".format, PLAIN, COLUMNS),
    st.builds("UPDATE v SET {} = {}".format, PLAIN, COLUMNS),
    st.builds("UPDATE v SET {} = 1".format, PLAIN),
    st.builds("UPDATE v SET {} = u.x FROM u WHERE u.x = 1 RETURNING v.{}".format, PLAIN, COLUMNS),
    st.builds("DELETE FROM v WHERE {} = 1".format, COLUMNS),
    st.builds("DELETE FROM v USING u WHERE v.{} = u.x RETURNING u.x".format, COLUMNS),
    st.builds("INSERT INTO v ({}) VALUES (1)".format, PLAIN),
    st.builds("INSERT INTO v ({}) VALUES (1) RETURNING {}".format, PLAIN, COLUMNS),
    st.builds("INSERT INTO v ({}) SELECT {} FROM v".format, PLAIN, COLUMNS),
    st.builds("INSERT INTO v (k) VALUES (1) ON CONFLICT (k) DO UPDATE SET {} = 1".format, PLAIN),
    st.builds("INSERT INTO v (k) VALUES (1) ON CONFLICT (k) DO UPDATE SET {} = excluded.{}".format, PLAIN, COLUMNS),
    st.builds("INSERT INTO v (k) VALUES (1) ON CONFLICT (k) DO UPDATE SET {} = v.{}".format, PLAIN, COLUMNS),
    st.sampled_from(
        (
            "DELETE FROM v",
            "INSERT INTO v DEFAULT VALUES",
            "INSERT INTO v (k) VALUES (1) ON CONFLICT DO NOTHING",
            "INSERT INTO v (k) VALUES (1) ON CONFLICT (k) DO NOTHING",
            "INSERT INTO w VALUES (1, 2)",
            "INSERT INTO w (id) VALUES (1) RETURNING b",
            "UPDATE w SET b = 1",
            "UPDATE w SET id = b",
            "DELETE FROM w",
            "DELETE FROM w WHERE b = 1",
            "INSERT INTO q VALUES (1, 2)",
            "UPDATE q SET b = 1",
            "DELETE FROM q",
            "DELETE FROM q WHERE b = 1",
            "UPDATE q SET b = 1 RETURNING a",
        )
    ),
)
GRANTS = st.lists(
    st.one_of(
        st.sampled_from(
            (
                *("SELECT ON t TO own", "SELECT (a, b) ON t TO own", "SELECT (a) ON t TO own", "ALL ON t TO own"),
                *("INSERT ON t TO own", "INSERT (a) ON t TO own", "UPDATE ON t TO own", "UPDATE (b) ON t TO own"),
                *("DELETE ON t TO own", "SELECT ON u TO own", "SELECT ON u TO ann", "ALL ON t, u TO own"),
                *("ALL ON v TO ann", "ALL ON v TO top", "SELECT ON v TO top", "UPDATE (b) ON v TO top"),
                *("INSERT (k) ON v TO top", "DELETE ON v TO top", "ALL ON w, q TO ann", "ALL ON v TO PUBLIC"),
                *("INSERT ON v, w, q TO ann", "UPDATE ON v, w, q TO ann", "DELETE ON v, w, q TO ann"),
            )
        ),
        st.builds("SELECT ({}) ON v TO ann".format, COLUMNS),
        st.builds("INSERT ({}) ON v TO ann".format, PLAIN),
        st.builds("UPDATE ({}) ON v TO ann".format, PLAIN),
    ),
    min_size=1,
    max_size=8,
)


def test_random_writes_to_views_need_postgresqls_privileges(oracle: Sessions, tmp_path: Path) -> None:
    server = ServerThread(tmp_path, PassingEngine())
    ours = Sessions(server.dsn())
    for side in (ours, oracle):
        for user in ("ann", "own", "top"):
            side.user(user)
        for line in VIEWS.strip().splitlines():
            side["boss"].execute(line.removeprefix("boss: ").encode())
        side._open["ann"] = psycopg.connect(side.dsn, user="ann", autocommit=True)

    @examples(80)
    @example(["UPDATE ON t TO own"], ["UPDATE q SET b = 1 RETURNING a"])
    @given(GRANTS, st.lists(WRITES, min_size=1, max_size=6))
    def compare(grants: list[str], statements: list[str]) -> None:
        for side in (ours, oracle):
            side["boss"].execute("REVOKE ALL ON t, u, v, w, q FROM ann, PUBLIC")
            side["boss"].execute("REVOKE ALL ON t, u FROM own")
            side["boss"].execute("REVOKE ALL ON v FROM top")
            for grant in grants:
                side["boss"].execute(f"GRANT {grant}".encode())
        for statement in statements:
            for role in ("ann", "boss"):
                outcomes = [shown(side.outcome(role, f"EXPLAIN {statement}"), "EXPLAIN") for side in (ours, oracle)]
                assert outcomes[0] == outcomes[1], (role, statement)

    try:
        compare()
    finally:
        ours.close()
        server.stop()
