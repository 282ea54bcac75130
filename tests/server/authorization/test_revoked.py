"""What is running when a role loses a privilege: subscriptions and cursors end with 42501."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread
from tests.polling import HANG_S
from tests.server.authorization.test_roles import Sessions


@pytest.fixture
def sessions(passing_server: ServerThread) -> Iterator[Sessions]:
    sessions = Sessions(passing_server.dsn())
    sessions["boss"].execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    sessions["boss"].execute("CREATE VIEW v AS SELECT a, b FROM t")
    for user in ("ann", "bob"):
        _ = sessions[user]
    yield sessions
    sessions.close()


LOSSES = {
    "revoke": ("GRANT SELECT ON t TO ann", "SUBSCRIBE t", "REVOKE SELECT ON t FROM ann"),
    "column": ("GRANT SELECT (a) ON t TO ann", "SUBSCRIBE (SELECT a FROM t)", "REVOKE SELECT (a) ON t FROM ann"),
    "public": ("GRANT SELECT ON t TO PUBLIC", "SUBSCRIBE t", "REVOKE ALL ON t FROM PUBLIC"),
    "membership": ("GRANT SELECT ON t TO bob; GRANT bob TO ann", "SUBSCRIBE t", "REVOKE bob FROM ann"),
    "inherit": ("GRANT SELECT ON t TO bob; GRANT bob TO ann", "SUBSCRIBE t", "REVOKE INHERIT OPTION FOR bob FROM ann"),
    "cascade": (
        "GRANT SELECT ON t TO bob WITH GRANT OPTION; SET ROLE bob; GRANT SELECT ON t TO ann; RESET ROLE",
        "SUBSCRIBE t",
        "REVOKE SELECT ON t FROM bob CASCADE",
    ),
    "superuser": ("ALTER ROLE ann SUPERUSER", "SUBSCRIBE t", "ALTER ROLE ann NOSUPERUSER"),
    "owned": ("GRANT SELECT ON t TO ann", "SUBSCRIBE t", "DROP OWNED BY ann"),
    "schema": ("GRANT SELECT ON t TO ann", "SUBSCRIBE t", "REVOKE USAGE ON SCHEMA public FROM PUBLIC"),
    "owner": ("ALTER TABLE t OWNER TO ann", "SUBSCRIBE t", "ALTER TABLE t OWNER TO bob"),
    "owner of a view": (
        "GRANT SELECT ON t TO bob; ALTER VIEW v OWNER TO bob; GRANT SELECT ON v TO ann",
        "SUBSCRIBE v",
        "REVOKE SELECT ON t FROM bob",
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_cursor_of_a_subscription_ends(loss: str, sessions: Sessions) -> None:
    grant, subscribe, revoke = LOSSES[loss]
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute(grant.encode())
    ann.execute(f"BEGIN; DECLARE c CURSOR FOR {subscribe}".encode())
    assert len(ann.execute("FETCH 1 c").fetchall()) == 1
    boss.execute("GRANT INSERT ON t TO bob")  # the role keeps what it has
    boss.execute("INSERT INTO t VALUES (3, 4)")
    assert len(ann.execute("FETCH 1 c").fetchall()) == 1
    boss.execute(revoke.encode())
    boss.execute("INSERT INTO t VALUES (5, 6)")
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied for") as caught:
        ann.execute("FETCH 1 c")
    assert caught.value.diag.message_detail == "The privilege was revoked after the query had begun."
    ann.execute("ROLLBACK")
    assert boss.execute("SELECT * FROM mz_internal.mz_subscriptions").fetchall() == []


@pytest.mark.parametrize("waits", [False, True])
def test_a_running_subscription_ends(waits: bool, sessions: Sessions) -> None:
    """COPY receives the rows; FETCH waits for a change."""
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("GRANT SELECT ON t TO ann, bob")
    received: list[bytes] = []
    started = threading.Event()
    caught: list[psycopg.Error] = []

    def subscribe() -> None:
        try:
            with ann.cursor() as cursor:
                if waits:
                    cursor.execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE t; FETCH 1 c")
                    started.set()
                    cursor.execute("FETCH 1 c")
                else:
                    with cursor.copy("COPY (SUBSCRIBE t) TO STDOUT") as rows:
                        for row in rows:
                            received.append(bytes(row))
                            started.set()
        except psycopg.Error as error:
            caught.append(error)

    thread = threading.Thread(target=subscribe)
    thread.start()
    assert started.wait(HANG_S)
    boss.execute("REVOKE SELECT ON t FROM ann")
    boss.execute("INSERT INTO t VALUES (7, 8)")
    thread.join(HANG_S)
    assert [error.sqlstate for error in caught] == ["42501"]
    assert not any(b"7\t8" in row for row in received)
    assert sessions["bob"].execute("SELECT * FROM t").fetchall() == [(1, 2), (7, 8)]


def test_a_cursor_of_a_query_ends(sessions: Sessions) -> None:
    boss, ann = sessions["boss"], sessions["ann"]
    boss.execute("INSERT INTO t VALUES (3, 4); GRANT SELECT (a) ON t TO ann")
    ann.execute("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t")
    assert len(ann.execute("FETCH 1 c").fetchall()) == 1
    ann.execute("COMMIT")
    boss.execute("REVOKE ALL ON t FROM ann")
    with pytest.raises(errors.InsufficientPrivilege):
        ann.execute("FETCH 1 c")
    boss.execute("GRANT SELECT ON t TO ann")
    assert len(ann.execute("FETCH 1 c").fetchall()) == 1
    boss.execute("DROP TABLE t CASCADE")
    assert ann.execute("FETCH 1 c").fetchall() == []
