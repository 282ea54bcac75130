"""Random messages of the extended protocol, with limits of rows, portals and cursors, compared with PostgreSQL."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.pgwire.messages import backend
from protocol.pgwire.messages.frontend import Bind, Close, Describe, Execute, Flush, Parse, Query, Sync
from tests.examples import examples
from tests.fix_server import ServerThread
from tests.server.frontend.raw_client import RawClient, raw_client

STATEMENTS = st.sampled_from(("", "", "p", "q"))
PORTALS = st.sampled_from(("", "", "", "c", "d"))
TEXTS = st.sampled_from(
    (
        *("VALUES (1), (2), (3), (4), (5)", "VALUES ($1::int), (2), ($1 + 1)", "TABLE v"),
        *("VALUES (1, 'a'), (2, NULL), (3, 'c')", "SELECT $1::text", "SELECT setseed(0)"),
        *("INSERT INTO v VALUES (7), (8), (9) RETURNING a", "INSERT INTO v VALUES ($1)", "INSERT INTO v VALUES (1)"),
        *("INSERT INTO v VALUES (1), (2) ON CONFLICT DO NOTHING", "DELETE FROM v", "TRUNCATE v", "SHOW DateStyle"),
        *("DECLARE c SCROLL CURSOR FOR VALUES (1), (2), (3), (4), (5)", "FETCH 2 FROM c", "MOVE -1 FROM c"),
        *("FETCH BACKWARD ALL FROM c", "CLOSE c", "CLOSE ALL", "DECLARE d CURSOR WITH HOLD FOR TABLE v", "FETCH d"),
        *("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "", "nonsense"),
        *("PREPARE p AS SELECT 1", "EXECUTE p", "EXECUTE q", "DEALLOCATE p", "DEALLOCATE ALL", "SELECT 1; SELECT 2"),
        *("SET DateStyle = ISO", "COPY v TO STDOUT", "SELECT nothing FROM v"),
        *("EXPLAIN EXECUTE q", "FETCH 0 FROM c", "FETCH ALL FROM d", "SELECT a FROM v WHERE a = $1", "LOCK TABLE v"),
    )
)
FORMATS = st.sampled_from(((), (0,), (1,), (0, 1), (0, 0, 0)))
PARAMETERS = st.sampled_from(((), (), (b"3",), (b"0",), (None,), (b"x",), (b"1", b"2")))
MESSAGES = st.one_of(
    *[st.builds(Parse, STATEMENTS, TEXTS, st.sampled_from(((), (), (23,), (25,))))] * 3,
    *[st.builds(Bind, PORTALS, STATEMENTS, st.sampled_from(((), (0,), (1,))), PARAMETERS, FORMATS)] * 3,
    *[st.builds(Execute, PORTALS, st.sampled_from((0, 0, 1, 1, 2, 3, 5, -1)))] * 4,
    st.builds(Describe, st.just("S"), STATEMENTS),
    st.builds(Describe, st.just("P"), PORTALS),
    st.builds(Close, st.just("S"), STATEMENTS),
    st.builds(Close, st.just("P"), PORTALS),
    st.just(Flush()),
)
USES = st.builds(
    lambda text, portal, parameters, formats, limits: [
        Parse("", text, ()),
        Bind(portal, "", (), parameters, formats),
        *(Execute(portal, limit) for limit in limits),
    ],
    TEXTS,
    PORTALS,
    PARAMETERS,
    FORMATS,
    st.lists(st.sampled_from((0, 1, 2)), min_size=1, max_size=3),
)
PIPELINES = st.one_of(
    USES, USES, st.lists(MESSAGES, max_size=8), st.tuples(USES, USES).map(lambda two: two[0] + two[1])
)
BATCHES = st.one_of(*[PIPELINES.map(lambda messages: [*messages, Sync()])] * 4, TEXTS.map(lambda text: [Query(text)]))


def shown(kind: str, body: Any) -> tuple[str, Any]:
    """A message without what names objects of one server."""
    if kind != "T":
        return kind, body
    fields = backend.RowDescription.parse(body, 0, len(body)).fields
    return kind, [(f.name, f.type_oid, f.size, f.typmod, f.format) for f in fields]


def answers(client: RawClient, messages: list[Any]) -> list[tuple[str, Any]]:
    """The answers. After an error without BindComplete: PostgreSQL finds errors in constants at Bind."""
    found = client.exchange(b"".join(message.serialize() for message in messages))
    ignored = "NS2" if any(kind == "E" for kind, _ in found) else "NS"
    return [shown(*message) for message in found if message[0] not in ignored]


@pytest.mark.slow
def test_random_messages_have_the_answers_of_postgresql(postgres: str, passing_server: ServerThread) -> None:
    port = urlsplit(postgres).port
    assert port is not None
    with raw_client(passing_server.port) as ours, raw_client(port) as theirs:
        ours.start("materialize", "materialize")
        theirs.start("postgres", "postgres")
        for client in (ours, theirs):
            client.exchange(Query("SET search_path = pg_temp; CREATE TEMP TABLE v (a int)").serialize())

        @examples(150, derandomize=True)
        @given(st.lists(BATCHES, min_size=1, max_size=8))
        @example(
            [
                [
                    Parse("p", "FETCH 2 FROM c"),
                    Parse("q", "EXECUTE missing"),
                    Describe("S", "p"),
                    Describe("S", "q"),
                    Sync(),
                ]
            ]
        )
        @example([[Parse("", "FETCH 2 FROM c"), Bind("c", ""), Execute("c"), Sync()]])
        @example([[Parse("", "DEALLOCATE ALL"), Bind("c", ""), Execute("c"), Execute("c"), Bind("", ""), Sync()]])
        @example([[Parse("", "SELECT $1::text"), Bind("", "", (), (b"3",)), Execute("", 1), Execute("", 1), Sync()]])
        @example([[Parse("", "CLOSE ALL"), Bind("", ""), Execute(""), Execute(""), Sync()]])
        @example([[Parse("", "DELETE FROM v"), Bind("", "", (), (), (0, 1)), Execute(""), Execute(""), Sync()]])
        @example(
            [
                [Parse("", "TRUNCATE v", (23,)), Bind("", ""), Sync()],
                [Parse("", "ROLLBACK", (23,)), Describe("S", ""), Sync()],
            ]
        )
        @example(
            [
                [Query("BEGIN")],
                [Parse("p", "VALUES (1), (2), (3), (4), (5)"), Bind("c", "p"), Execute("c", 1), Bind("", "p"), Sync()],
                [Parse("q", "ROLLBACK"), Bind("d", "q"), Sync()],
                [Parse("", "nonsense"), Sync()],
                *([message, Sync()] for message in (Execute("c"), Execute(""), Describe("P", "c"), Execute("d"))),
                *([Describe("S", name), Sync()] for name in "pq"),
                *([message, Sync()] for message in (Bind("d", "q"), Close("P", "d"), Bind("d", "q"), Execute("d"))),
                [Execute("c"), Sync()],
            ]
        )
        @example(
            [
                [Query("BEGIN")],
                [Parse("p", "VALUES (1), (2), (3), (4), (5)"), Bind("c", "p"), Execute("c", 1), Sync()],
                [Query("SAVEPOINT s")],
                [Bind("d", "p"), Execute("d", 1), Parse("", "nonsense"), Sync()],
                *([message, Sync()] for message in (Execute("c", 1), Execute("d", 1), Describe("P", "c"))),
                [Query("ROLLBACK TO s")],
                *([message, Sync()] for message in (Execute("c", 1), Execute("d", 1))),
            ]
        )
        def compare(batches: list[list[Any]]) -> None:
            for client in (ours, theirs):
                for text in ("ROLLBACK", "CLOSE ALL", "DEALLOCATE ALL", "DROP TABLE IF EXISTS w", "DELETE FROM v"):
                    client.exchange(Query(text).serialize())
                client.exchange(Query("INSERT INTO v VALUES (5)").serialize())
            for batch in batches:
                found, expected = answers(ours, batch), answers(theirs, batch)
                if any(kind == "E" and body is not None and body[1] == "0A000" for kind, body in found):
                    return
                assert found == expected, batch

        compare()
