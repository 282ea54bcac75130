"""Constant queries: a call that is answered as a whole gets the same answer as its messages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any
from unittest import mock

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.call import NAME_BYTES_MAX, PARSE_BYTES_MAX, CallShape, bound_statement, unnamed_parse
from protocol.pgwire.messages.backend import CommandComplete, DataRow, ParseComplete, ReadyForQuery
from protocol.pgwire.messages.frontend import Bind, Close, Describe, Execute, Flush, FrontendMessage, Parse, Query, Sync
from protocol.pgwire.messages.startup import StartupMessage
from server.frontend.constant_queries import CallAnswer, ConstantQueries
from server.frontend.dispatch import Dispatcher
from server.frontend.listener import Listener
from server.frontend.query_cache import QueryCache
from server.session_state.prepared import Prepared
from server.sql.grammar.statements import Insert, Update
from tests.examples import examples
from tests.fix_server import ServerThread
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine

STATEMENTS = (
    "SELECT $1::int",
    "SELECT $1::text AS a, 2, $2::numeric(6,2)",
    "SELECT $1::timestamptz",
    "SELECT $1::bool, $1",
    "SELECT 7",
    "SELECT current_database(), $1::int",
    "VALUES ($1::int), (2)",
    "INSERT INTO inserted VALUES ($1, $2)",
    "INSERT INTO inserted (b) VALUES ($1)",
    "INSERT INTO inserted (a, c) VALUES (1, $1), ($2, current_database())",
    "INSERT INTO inserted (a) VALUES ($1) RETURNING a",
    "DELETE FROM inserted",
    "SET TimeZone = 'Asia/Tokyo'",
    "BEGIN",
    "ROLLBACK",
    "SELECT 1 +",
)
VALUES = (None, b"1", b"-5", b"x", b"", b"t", b"1.005", b"2024-01-02 03:04:05", b"\0\0\0\7", b"\xff", b"9" * 30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path_factory.mktemp("data"), PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE inserted (a int NOT NULL, b numeric(4, 1) DEFAULT 7, c text)")
    yield server
    server.stop()


names = st.sampled_from(["", "a", "b"])
formats = st.lists(st.integers(0, 2), max_size=3).map(tuple)
binds = st.builds(
    Bind, st.sampled_from(["", "", "", "p"]), names, formats, st.lists(st.sampled_from(VALUES), max_size=2).map(tuple)
)


@st.composite
def exchanges(draw: st.DrawFn) -> list[FrontendMessage]:
    """Messages up to a Sync: mostly those that drivers send, sometimes with another portal, format or row limit."""
    messages: list[FrontendMessage] = []
    bound = draw(st.lists(binds, min_size=1, max_size=3))
    if draw(st.booleans()):
        name = draw(names)
        if name or draw(st.booleans()):
            messages.append(Close("S", name))
        messages.append(Parse(name, draw(st.sampled_from(STATEMENTS))))
        if not name:
            bound[0].statement = name
    for bind in bound:
        bind.result_formats = draw(formats)
        messages.append(bind)
        if draw(st.booleans()):
            messages.append(Describe("P", bind.portal))
        messages.append(Execute(bind.portal, draw(st.sampled_from([0, 0, 0, 1]))))
    return [*messages, Sync()]


def serialized(messages: Sequence[FrontendMessage]) -> bytes:
    return b"".join(message.serialize() for message in messages)


class Wire:
    """A transport that records what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.came = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += data
        self.came.set()

    def close(self) -> None:
        self.closed = True
        self.came.set()

    def is_closing(self) -> bool:
        return self.closed

    def fileno(self) -> int:
        """Returns a low descriptor, so that the connection is accepted."""
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> Wire | tuple[str, int]:
        return ("127.0.0.1", 1) if name == "peername" else self

    def setsockopt(self, *option: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    async def next_write(self) -> bytes:
        async with asyncio.timeout(HANG_S):
            while not self.written:
                self.came.clear()
                await self.came.wait()
        written, self.written = self.written, b""
        return written

    async def answered(self) -> bytes:
        """Returns the bytes written up to a ReadyForQuery, or all bytes if the connection was closed."""
        async with asyncio.timeout(HANG_S):
            while self.written[-6:-1] != b"Z\0\0\0\5" and not self.closed:
                self.came.clear()
                await self.came.wait()
        written, self.written = self.written, b""
        return written


async def answers(listener: Listener, exchanges: list[list[bytes]]) -> list[bytes]:
    """Returns the answer to each exchange, for a new client. Each exchange is a list of chunks; the client waits for
    ReadyForQuery after it.
    """
    wire, client = Wire(), listener.new_client()
    client.connection_made(wire)  # type: ignore[arg-type]
    client.data_received(StartupMessage({"user": "materialize", "database": "materialize"}).serialize())
    await wire.answered()
    found = []
    for chunks in exchanges:
        for chunk in chunks:
            client.data_received(chunk)
        found.append(await wire.answered())
    client.connection_lost(None)
    return found


@given(st.lists(exchanges(), min_size=1, max_size=6))
def test_whole_calls_and_single_messages_have_the_same_answers(
    server: ServerThread, exchanges: list[list[FrontendMessage]]
) -> None:
    apart = [[message.serialize() for message in messages] for messages in exchanges]
    together = [[serialized(messages)] for messages in exchanges]
    assert outcome(server, together) == outcome(server, apart)


QUERIES = (
    *(f"INSERT INTO inserted VALUES ({row})" for row in ("1", "1, 2.55, 'x'", "NULL", "2, 10000", "'3'", "1.5", "x")),
    *(f"INSERT INTO inserted (a, c) VALUES {rows}" for rows in ("(1, 5)", "(1, 'a'), (2, NULL)", "(1)", "(1, 2, 3)")),
    "insert into missing values (1)",
    "INSERT INTO inserted (a) VALUES (1); SELECT 1",
    "SELECT 1",
    "BEGIN",
    "BEGIN READ ONLY",
    "COMMIT",
    "ROLLBACK",
    "SET search_path TO nowhere",
    "RESET search_path",
    "INSERT INTO inserted VALUES (4, 2, CURRENT_USER)",
    "INSERT INTO inserted VALUES ('4', abs(-2), 'b')",
    "UPDATE inserted SET a = a + 1 WHERE a = 7",
    "UPDATE inserted SET a = 10 % 3 - -2 WHERE a > 3",
    "UPDATE inserted SET nothing = 1 WHERE a = 2",
    "UPDATE inserted SET a = a / 0 WHERE a = 4",
    "DELETE FROM inserted WHERE a = 8",
    "DELETE FROM inserted WHERE a = 4 RETURNING a",
    "SELECT * FROM inserted WHERE a = 4",
    "SELECT a + 1 FROM inserted WHERE a = '7'",
    "SELECT a FROM inserted WHERE a = 'x'",
)
UNSYNCED: list[FrontendMessage] = [Parse("", "INSERT INTO inserted VALUES (7)"), Bind("", ""), Execute("")]


@examples(40)
@given(st.lists(st.sampled_from(QUERIES), min_size=1, max_size=8))
def test_statements_with_literals_have_the_same_answers_as_when_they_are_parsed(
    server: ServerThread, texts: list[str]
) -> None:
    sent = [[Query(text).serialize()] for text in texts]
    found = outcome(server, sent)
    with (
        mock.patch.object(ConstantQueries, "insert_literals", return_value=None),
        mock.patch.object(QueryCache, "shared_plan", return_value=None),
    ):
        assert found == outcome(server, sent)


def test_an_insert_of_literals_ends_the_implicit_transaction_before_it(server: ServerThread) -> None:
    _, rows = outcome(server, [[serialized([*UNSYNCED, Query("INSERT INTO inserted VALUES (8)")])]])
    assert [row[0] for row in rows] == [7, 8]


def test_a_statement_with_literals_is_planned_once_for_all_values(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []
    prepare = Dispatcher.prepare

    def recorded(dispatcher: Dispatcher, *arguments: Any) -> Prepared:
        planned.append(arguments[0])
        return prepare(dispatcher, *arguments)

    monkeypatch.setattr(Dispatcher, "prepare", recorded)
    queries = [[Query(f"INSERT  INTO inserted VALUES ({i}, {i}.5, 'row {i}')").serialize()] for i in range(5)]
    _, rows = outcome(server, queries)
    assert rows == [(i, Decimal(f"{i}.5"), f"row {i}") for i in range(5)]
    assert sum(isinstance(statement, Insert) for statement in planned) == 1
    updates = [[Query(f"UPDATE  inserted SET a = a + {i} WHERE a = {i}").serialize()] for i in range(5)]
    outcome(server, updates)
    assert sum(isinstance(statement, Update) for statement in planned) == 1


def outcome(server: ServerThread, exchanges: list[list[bytes]]) -> tuple[list[bytes], list[tuple[object, ...]]]:
    """The answers to a new client, and the rows that it has inserted."""
    found = server.call(answers(server.app.listener, exchanges))
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        rows = connection.execute("SELECT * FROM inserted").fetchall()
        connection.execute("TRUNCATE inserted")
    return found, sorted(rows, key=repr)


def test_an_insert_is_answered_by_one_write_after_its_commit(server: ServerThread) -> None:
    insert: list[FrontendMessage] = [Parse("", "INSERT INTO inserted VALUES ($1)"), Bind("", "", (), (b"1",))]
    messages = [*insert, Describe("P", ""), Execute(""), Sync()]
    writes = server.call(writes_after(server.app.listener, serialized(messages)))
    assert len(writes) == 1
    assert writes[0].endswith(CommandComplete("INSERT 0 1").serialize() + ReadyForQuery("I").serialize())


def test_the_answer_to_sync_and_flush_does_not_wait_for_the_next_statement(server: ServerThread) -> None:
    insert = Query("INSERT INTO inserted VALUES (1)").serialize()
    for first in (Query("SELECT 7").serialize(), serialized([Parse("", "SELECT 7"), Flush()])):
        answer, rest = server.call(writes_after(server.app.listener, first + insert))
        assert b"INSERT 0 1" not in answer
        assert rest == CommandComplete("INSERT 0 1").serialize() + ReadyForQuery("I").serialize()


async def writes_after(listener: Listener, data: bytes) -> list[bytes]:
    """Sends the data from a new client. Returns its writes up to the answer to INSERT."""
    wire, client = Wire(), listener.new_client()
    client.connection_made(wire)  # type: ignore[arg-type]
    client.data_received(StartupMessage({"user": "materialize", "database": "materialize"}).serialize())
    await wire.answered()
    client.data_received(data)
    writes = []
    while not writes or b"INSERT" not in writes[-1]:
        writes.append(await wire.next_write())
    client.connection_lost(None)
    return writes


def test_each_pipelined_call_is_answered(server: ServerThread) -> None:
    calls = [serialized([Bind("", "", (), (b"%d" % i,)), Execute(""), Sync()]) for i in range(20)]
    parse = Parse("", "SELECT $1::int").serialize()
    (answer,) = server.call(answers(server.app.listener, [[parse + b"".join(calls)]]))
    for i in range(20):
        assert answer.count(DataRow((b"%d" % i,)).serialize()) == 1
    assert answer.count(ReadyForQuery("I").serialize()) == 20


def recorded_answers(monkeypatch: pytest.MonkeyPatch) -> list[CallAnswer]:
    """Returns a list to which the answers to whole calls are appended."""
    found: list[CallAnswer] = []
    answer_call = ConstantQueries.answer_call

    def recorded(queries: ConstantQueries) -> CallAnswer | None:
        if (answer := answer_call(queries)) is not None:
            found.append(answer)
        return answer

    monkeypatch.setattr(ConstantQueries, "answer_call", recorded)
    return found


def test_the_calls_of_drivers_are_answered_as_a_whole(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorded_answers(monkeypatch)
    parse: list[FrontendMessage] = [Parse("a", "SELECT $1::int"), Sync()]
    call: list[FrontendMessage] = [Bind("", "a", (0,), (b"5",), (1,)), Describe("P", ""), Execute(""), Sync()]
    _, answer = server.call(answers(server.app.listener, [[serialized(parse)], [serialized(call)]]))
    assert found == [CallAnswer(answer.removesuffix(ReadyForQuery("I").serialize()), "select", synced=True)]


def test_a_statement_without_a_name_is_parsed_and_called_as_a_whole(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded_answers(monkeypatch)

    def call(text: str, value: bytes) -> list[bytes]:
        messages = [Parse("", text), Bind("", "", (0,), (value,)), Describe("P", ""), Execute(""), Sync()]
        return [serialized(messages)]

    again = serialized([Bind("", "", (0,), (b"9",)), Execute(""), Sync()])
    first, second = "SELECT $1::int + 1", "SELECT $1::int + 2"
    sent = [call(first, b"5"), call(second, b"5"), call(first, b"6"), call(second, b"7"), call(first, b"8"), [again]]
    answered = server.call(answers(server.app.listener, sent))
    parsed = ParseComplete().serialize()
    whole = [answer.data + ReadyForQuery("I").serialize() for answer in found if answer.data.startswith(parsed)]
    assert whole == answered[2:5]  # the first two had no plan
    values = [b"7", b"9", b"9"]
    assert all(DataRow((value,)).serialize() in answer for answer, value in zip(whole, values, strict=True))
    assert DataRow((b"10",)).serialize() in answered[5]


def test_a_call_with_the_parse_of_a_statement_follows_changes_of_the_catalog(server: ServerThread) -> None:
    call = serialized([Parse("", "INSERT INTO changed VALUES ($1)"), Bind("", "", (), (b"5",)), Execute(""), Sync()])
    sent = [
        [Query("CREATE TABLE changed (a int)").serialize()],
        *[[call]] * 3,
        [Query("DROP TABLE changed").serialize()],
        [call],
        [Query("CREATE TABLE changed (a text)").serialize()],
        *[[call]] * 3,
        [Query("BEGIN; DROP TABLE changed; CREATE TABLE changed (a int CHECK (a > 5))").serialize()],
        [call],
        [Query("ROLLBACK").serialize()],
        [call],
        [Query("DROP TABLE changed").serialize()],
    ]
    found = server.call(answers(server.app.listener, sent))
    assert len(found) == 15
    assert [number for number, answer in enumerate(found) if b"INSERT 0 1" in answer] == [1, 2, 3, 7, 8, 9, 13]
    assert b'relation "changed" does not exist' in found[5]
    assert b"violates check constraint" in found[11]


def test_a_cached_answer_is_the_same_in_each_transaction_state(server: ServerThread) -> None:
    texts = ["SELECT 1, 'x'", "SELECT 1, 'x'", "BEGIN", "SELECT 1, 'x'", "ROLLBACK", "SELECT 1, 'x'", "BEGIN", "SELECT",
             "SELECT 1, 'x'", "ROLLBACK", "SELECT 1, 'x'"]  # fmt: skip
    found = server.call(answers(server.app.listener, [[Query(text).serialize()] for text in texts]))
    rows, idle, block = found[0][:-6], ReadyForQuery("I").serialize(), ReadyForQuery("T").serialize()
    assert DataRow((b"1", b"x")).serialize() in rows
    assert [found[i] for i in (1, 3, 5, 8, 10)] == [rows + idle, rows + block, rows + idle, rows + block, rows + idle]


def test_a_cached_answer_ends_the_implicit_transaction_before_it(server: ServerThread) -> None:
    """A Query drops the unnamed statement and the portals of messages without Sync, also if its answer is cached."""
    query = Query("SELECT 2").serialize()
    unfinished = serialized([Parse("", "SELECT 3"), Bind("", "")])
    execute = serialized([Bind("", ""), Execute(""), Sync()])
    _, _, answer = server.call(answers(server.app.listener, [[query], [unfinished + query], [execute]]))
    assert b"unnamed prepared statement does not exist" in answer


@given(binds, st.binary(max_size=12), st.booleans(), st.booleans())
def test_a_call_shape_parses_the_values_of_bind(bind: Bind, after: bytes, described: bool, synced: bool) -> None:
    bind.portal = ""
    messages: list[FrontendMessage] = [bind, Execute("")]
    if described:
        messages.insert(1, Describe("P", ""))
    if synced:
        messages.append(Sync())
    data = b"??" + serialized(messages)
    shape = CallShape.of(data + after, 2)
    if len(bind.parameter_formats) > 1 and len(bind.parameter_formats) != len(bind.parameters):
        assert shape is None
        return
    assert shape is not None
    assert (shape.described, shape.synced) == (described, synced)
    assert shape.read(data + after, 2) == (list(bind.parameters), len(data))
    statement = bind.statement.encode()
    assert bound_statement(data, 2) == (statement if len(statement) <= NAME_BYTES_MAX else None)
    for cut in range(2, len(data)):
        assert shape.read(data[:cut], 2) is None
        assert cut < 8 + len(statement) or bound_statement(data[:cut], 2) in (statement, None)
    bind.portal = "named"
    assert bound_statement(serialized([bind]), 0) is None
    assert bound_statement(serialized([Execute("")]), 0) is None


@given(
    st.sampled_from(["", "a"]), st.text(max_size=20), st.sampled_from(["", "a"]), st.booleans(), st.binary(max_size=3)
)
def test_a_parse_before_a_bind_of_the_unnamed_statement_is_found(
    name: str, text: str, bound: str, with_bind: bool, before: bytes
) -> None:
    parse = Parse(name, text.replace("\0", ""), (23,)).serialize()
    data = before + parse + (Bind("", bound).serialize() if with_bind else Sync().serialize())
    found = unnamed_parse(data, len(before))
    assert found == (parse if not name and with_bind and not bound else None)
    for cut in range(len(before) + len(parse) + 7):  # up to the end of the Bind's names
        assert unnamed_parse(data[:cut], len(before)) is None


def test_long_parse_messages_are_not_compared() -> None:
    bind = Bind("", "").serialize()
    for length in (PARSE_BYTES_MAX - 4, PARSE_BYTES_MAX):  # with the length itself
        parse = Parse("", "x" * (length - 4)).serialize()
        assert (unnamed_parse(parse + bind, 0) is None) == (length == PARSE_BYTES_MAX)
