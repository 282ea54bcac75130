"""The phases of a connection, its framing for any division of the bytes, and the messages that it refuses.

`python -m tests.protocol.test_connection` rewrites docs/protocol-states.md from the transition tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.connection import DROPPED, DROPPED_MAX, EOF, NEED_DATA, RECEIVED, SENT, Connection, Phase, Signal
from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import ErrorResponse, ParseComplete, ReadyForQuery
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail, CopyInResponse
from protocol.pgwire.messages.frontend import (
    Bind,
    Close,
    Describe,
    Execute,
    Flush,
    FrontendMessage,
    FunctionCall,
    Parse,
    Query,
    Sync,
    Terminate,
)
from protocol.pgwire.messages.sasl import (
    SASL_BYTES_MAX,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    SASLInitialResponse,
    SASLResponse,
)
from protocol.pgwire.messages.startup import (
    STARTUP_BYTES_MAX,
    AuthenticationCleartextPassword,
    AuthenticationOk,
    CancelRequest,
    GSSENCRequest,
    NegotiateProtocolVersion,
    OpeningPacket,
    PasswordMessage,
    SSLRequest,
    StartupMessage,
)
from protocol.pgwire.messages.wire_format import HEADER, INT32, LARGE_MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX
from tests.examples import examples
from tests.protocol import strategies as s
from tests.protocol.test_messages import Raw, exchange

Event = FrontendMessage | Signal | tuple[SqlState, str, Severity]
STARTUP = StartupMessage({"user": "me", "database": "d"})


def wire(messages: Iterable[FrontendMessage]) -> bytes:
    return b"".join(message.serialize() for message in messages)


def drain(connection: Connection) -> list[Event]:
    """All events up to the first signal. An error is an event, too, and is answered as a session answers it."""
    events: list[Event] = []
    while True:
        try:
            event = connection.next_event()
        except PgError as error:
            connection.send(ErrorResponse.of(error))
            events.append((error.sqlstate, error.message, error.severity))
            continue
        if event is EOF:
            events.append(EOF)
        if isinstance(event, Signal):
            return events
        events.append(event)


def ready(**arguments: int) -> Connection:
    connection = Connection(**arguments)
    connection.receive_data(STARTUP.serialize())
    assert drain(connection) == [STARTUP]
    connection.send(AuthenticationOk(), ReadyForQuery("I"))
    connection.data_to_send()
    return connection


def in_phase(connection: Connection, phase: Phase) -> bool:
    """A function, because mypy assumes that a property that was compared keeps its value."""
    return connection.phase is phase


def feed(connection: Connection, *messages: FrontendMessage) -> list[Event]:
    connection.receive_data(wire(messages))
    return drain(connection)


def fatal(connection: Connection, data: bytes) -> str:
    """The message of the error with which `data` ends the connection."""
    connection.receive_data(data)
    with pytest.raises(PgError) as caught:
        connection.next_event()
    assert caught.value.severity is Severity.FATAL
    assert in_phase(connection, Phase.CLOSED)
    assert connection.next_event() is EOF
    return caught.value.message


# --- framing ---

commands = st.lists(
    st.one_of(*(strategy for cls, strategy in s.FRONTEND.items() if cls not in s.AUTHENTICATION)), max_size=12
)


def in_chunks(data: bytes, cuts: Iterable[int]) -> list[Event]:
    """The events that a connection returns for `data` divided at `cuts`. EOF, which it repeats, is omitted."""
    connection = ready()
    events: list[Event] = []
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        connection.receive_data(data[start:end])
        events += [event for event in drain(connection) if event is not EOF]
    return events


@given(commands, st.data())
def test_events_do_not_depend_on_the_division_of_the_bytes(
    messages: list[FrontendMessage], data: st.DataObject
) -> None:
    stream = wire(messages)
    last = next((i + 1 for i, each in enumerate(messages) if isinstance(each, Terminate)), len(messages))
    expected = [each for each in messages[:last] if not isinstance(each, CopyData | CopyDone | CopyFail)]
    assert in_chunks(stream, []) == expected
    assert in_chunks(stream, range(1, len(stream))) == expected
    assert in_chunks(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=5))) == expected


@given(st.one_of(*s.OPENING.values()))
def test_startup_packets_whole_and_byte_by_byte(packet: OpeningPacket) -> None:
    whole, pieces = Connection(), Connection()
    events: list[Event] = []
    for byte in packet.serialize():
        pieces.receive_data(bytes((byte,)))
        events += drain(pieces)
    assert feed(whole, packet) == events
    assert [event for event in events if event is not EOF] == [packet]
    assert whole.phase is pieces.phase
    assert whole.data_to_send() == pieces.data_to_send()


@given(st.one_of(*(strategy for cls, strategy in s.FRONTEND.items() if cls not in (*s.AUTHENTICATION, Terminate))))
def test_ten_startup_packets_at_the_same_time(message: FrontendMessage) -> None:
    assert feed(ready(), *[message] * 10) == feed(ready(), message) * 10


def test_events_leave_no_memory_behind() -> None:
    connection = ready()
    feed(connection, Query("x" * 1_000_000))
    assert connection.bytes_waiting == 0
    assert not connection._data


def test_dropped_messages_are_counted() -> None:
    """Others may run between two calls of `next_event`."""
    connection = ready()
    connection.receive_data(CopyData(b"").serialize() * (2 * DROPPED_MAX + 1) + Query("x").serialize())
    assert [connection.next_event() for _ in range(4)] == [DROPPED, DROPPED, Query("x"), NEED_DATA]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("size", "piece"), [(64 << 20, 64 << 10), (1 << 20, 2)])
def test_the_cost_of_a_fragmented_message_is_linear(size: int, piece: int) -> None:
    """Copying the message for each fragment would move 32 GiB and 256 GiB."""
    connection = ready(message_bytes_max=size + 4)
    stream = CopyData(bytes(size)).serialize()
    connection.send(CopyInResponse(0, ()))
    for at in range(0, len(stream), piece):
        assert connection.next_event() is NEED_DATA
        connection.receive_data(stream[at : at + piece])
    event = connection.next_event()
    assert isinstance(event, CopyData)
    assert len(event.data) == size
    assert connection.next_event() is NEED_DATA


# --- fuzz ---


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_arbitrary_bytes(chunks: list[bytes]) -> None:
    survives(Connection(), chunks)


@given(commands, st.data())
@examples(200)
def test_mutated_messages(messages: list[FrontendMessage], data: st.DataObject) -> None:
    stream = bytearray(wire(messages))
    for _ in range(data.draw(st.integers(1, 4))):
        if stream:
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    connection = ready()
    if data.draw(st.booleans()):
        connection.send(CopyInResponse(0, (0,)))
    survives(connection, [bytes(stream[i : i + 50]) for i in range(0, len(stream), 50)])


@given(commands, st.integers(0, 10_000))
def test_truncated_streams_end(messages: list[FrontendMessage], keep: int) -> None:
    survives(ready(), [wire(messages)[:keep]])


def survives(connection: Connection, chunks: list[bytes]) -> None:
    """Only PgError is raised, there are no more events than bytes, and EOF ends the connection."""
    events: list[Event] = []
    for chunk in chunks:
        connection.receive_data(chunk)
        events += drain(connection)
    connection.receive_eof()
    events += drain(connection)
    assert events[-1] is EOF
    assert in_phase(connection, Phase.CLOSED)
    assert len([event for event in events if event is not EOF]) <= sum(map(len, chunks))
    s.read_backend(connection.data_to_send())


# --- startup ---


def test_startup_after_both_encryption_requests() -> None:
    connection = Connection()
    assert in_phase(connection, Phase.STARTUP)
    for request in (GSSENCRequest(), SSLRequest()):
        assert feed(connection, request) == [request]
        connection.send_encoded(b"N")
        assert connection.data_to_send() == b"N"
    assert feed(connection, STARTUP) == [STARTUP]
    assert connection.parameters == {"user": "me", "database": "d"}
    assert connection.protocol_version == (3, 0)
    assert in_phase(connection, Phase.AUTHENTICATION)
    connection.send(AuthenticationOk())
    assert in_phase(connection, Phase.READY)


def test_startup_sent_together_with_ssl_request() -> None:
    assert feed(Connection(), SSLRequest(), STARTUP) == [SSLRequest(), STARTUP]


def test_each_encryption_request_is_accepted_once() -> None:
    connection = Connection()
    feed(connection, SSLRequest())
    message = fatal(connection, SSLRequest().serialize())
    assert message == "unsupported frontend protocol 1234.5679: server supports 3.0 to 3.0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0\x07\0\0\0", "invalid length of startup packet"),
        (b"\0\0\x27\x15", "invalid length of startup packet"),
        (b"\xff\xff\xff\xff", "invalid length of startup packet"),
        (b"GET / HTTP/1.1\r\n", "invalid length of startup packet"),
        (b"\x16\x03\x01\x02\x00\x01", "invalid length of startup packet"),
        (b"\0\0\0\x08\0\x02\0\0", "unsupported frontend protocol 2.0: server supports 3.0 to 3.0"),
        (b"\0\0\0\x0d\0\x03\0\0\xff\0x\0\0", 'invalid byte sequence for encoding "UTF8": 0xff'),
    ],
)
def test_malformed_startup_packets(data: bytes, message: str) -> None:
    assert fatal(Connection(), data) == message


def test_the_longest_startup_packet_is_accepted() -> None:
    startup = StartupMessage({"user": "x" * (STARTUP_BYTES_MAX - 11)})
    assert len(startup.serialize()) == STARTUP_BYTES_MAX + 4
    assert feed(Connection(), startup) == [startup]


def test_cancel_request_ends_the_connection() -> None:
    connection = Connection()
    assert feed(connection, CancelRequest(7, 2**32 - 1)) == [CancelRequest(7, 2**32 - 1), EOF]
    assert in_phase(connection, Phase.CLOSED)


@pytest.mark.parametrize(
    ("startup", "answer"),
    [
        (StartupMessage({"user": "me"}, (3, 2)), NegotiateProtocolVersion(())),
        (StartupMessage({"user": "me", "_pq_.x": "1"}), NegotiateProtocolVersion(("_pq_.x",))),
    ],
)
def test_version_negotiation(startup: StartupMessage, answer: NegotiateProtocolVersion) -> None:
    connection = Connection()
    assert feed(connection, startup) == [startup]
    assert s.read_backend(connection.data_to_send()) == [answer]
    assert connection.parameters == {"user": "me"}
    assert connection.protocol_version == startup.version


def test_password() -> None:
    connection = Connection()
    feed(connection, STARTUP)
    connection.send(AuthenticationCleartextPassword())
    assert feed(connection, PasswordMessage("secret")) == [PasswordMessage("secret")]
    assert fatal(connection, Query("SELECT 1").serialize()) == "expected password response, got message type 81"


def test_sasl() -> None:
    connection = Connection()
    feed(connection, STARTUP)
    connection.send(AuthenticationSASL(("SCRAM-SHA-256",)))
    assert feed(connection, SASLInitialResponse("SCRAM-SHA-256", b"n,,")) == [
        SASLInitialResponse("SCRAM-SHA-256", b"n,,")
    ]
    connection.send(AuthenticationSASLContinue(b"r="))
    assert feed(connection, SASLResponse(b"c=")) == [SASLResponse(b"c=")]
    connection.send(AuthenticationSASLFinal(b"v="), AuthenticationOk())
    assert in_phase(connection, Phase.READY)


@pytest.mark.parametrize("phase", [Phase.SASL, Phase.SASL_CONTINUED])
def test_messages_out_of_place_during_sasl(phase: Phase) -> None:
    def begun() -> Connection:
        connection = Connection()
        feed(connection, STARTUP)
        connection.send(AuthenticationSASL(("SCRAM-SHA-256",)))
        if phase is Phase.SASL_CONTINUED:
            feed(connection, SASLInitialResponse("SCRAM-SHA-256", b""))
            connection.send(AuthenticationSASLContinue(b""))
        assert in_phase(connection, phase)
        return connection

    assert fatal(begun(), Query("SELECT 1").serialize()) == "expected SASL response, got message type 81"
    longest = b"x" * (SASL_BYTES_MAX - len(b"SCRAM-SHA-256\0\0\0\0\0"))
    assert feed(begun(), SASLInitialResponse("SCRAM-SHA-256", longest))
    assert fatal(begun(), SASLInitialResponse("SCRAM-SHA-256", longest + b"x").serialize()) == "invalid message length"
    assert fatal(begun(), b"p" + INT32.pack(2**30)) == "invalid message length"  # before its body has arrived


def test_a_client_may_not_answer_before_it_is_asked() -> None:
    connection = Connection()
    feed(connection, STARTUP)
    message = fatal(connection, PasswordMessage("secret").serialize())
    assert message == "expected password response, got message type 112"


def test_nothing_may_follow_an_accepted_ssl_request_unencrypted() -> None:
    connection = Connection()
    connection.receive_data(SSLRequest().serialize() + STARTUP.serialize())
    assert connection.next_event() == SSLRequest()
    with pytest.raises(PgError, match="received unencrypted data after SSL request") as caught:
        connection.accept_tls()
    assert caught.value.severity is Severity.FATAL
    assert connection.next_event() is EOF
    assert connection.data_to_send() == b""


def test_encryption_is_requested_at_most_once() -> None:
    for request in (SSLRequest(), GSSENCRequest()):
        connection = Connection()
        feed(connection, SSLRequest())
        connection.accept_tls()
        assert connection.data_to_send() == b"S"
        assert "unsupported frontend protocol" in fatal(connection, request.serialize())
        direct = Connection()
        direct.encrypted()
        assert "unsupported frontend protocol" in fatal(direct, request.serialize())


# --- the phases of a session ---

ERROR = ErrorResponse("ERROR", "22012", "division by zero")


def test_extended_batch() -> None:
    connection = ready()
    batch = (Parse("", "SELECT 1"), Bind("", ""), Describe("P", ""), Execute(""), Close("S", ""), Flush())
    for message in batch:
        assert feed(connection, message) == [message]
        assert in_phase(connection, Phase.EXTENDED)
    assert feed(connection, Sync()) == [Sync()]
    assert in_phase(connection, Phase.READY)


def test_an_error_in_a_batch_skips_until_sync() -> None:
    connection = ready()
    connection.receive_data(wire([Parse("", "x"), Bind("", ""), Query("y"), CopyDone(), Sync(), Query("z")]))
    assert connection.next_event() == Parse("", "x")
    connection.send(ERROR)
    assert in_phase(connection, Phase.SKIP_UNTIL_SYNC)
    assert connection.next_event() == Sync()
    assert drain(connection) == [Query("z")]


def test_skipped_messages_are_framed_but_not_parsed() -> None:
    connection = ready()
    feed(connection, Parse("", ""))
    connection.send(ERROR)
    connection.receive_data(b"P\0\0\0\x06!!")
    assert drain(connection) == []
    assert fatal(connection, b"y\0\0\0\x04") == "invalid frontend message type 121"


def test_an_error_outside_a_batch_skips_nothing() -> None:
    connection = ready()
    for message in (Query("x"), Sync(), FunctionCall(b"")):
        assert feed(connection, message) == [message]
        connection.send(ERROR)
        assert in_phase(connection, Phase.READY)


def test_a_query_inside_a_batch_ends_it() -> None:
    connection = ready()
    feed(connection, Parse("", "x"), Query("y"))
    connection.send(ERROR)
    assert in_phase(connection, Phase.READY)


def test_invalid_utf8_fails_only_the_command() -> None:
    connection = ready()
    connection.receive_data(b"Q\0\0\0\x06\xff\0")
    assert drain(connection) == [
        (SqlState.CHARACTER_NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8": 0xff', Severity.ERROR)
    ]
    assert in_phase(connection, Phase.READY)
    connection.receive_data(b"P\0\0\0\x09\xff\0\0\0\0")
    assert len(drain(connection)) == 1
    assert in_phase(connection, Phase.SKIP_UNTIL_SYNC)


def test_copy_in_simple() -> None:
    connection = ready()
    feed(connection, Query("COPY t FROM STDIN"))
    connection.send(CopyInResponse(0, (0,)))
    assert in_phase(connection, Phase.COPY_IN)
    assert feed(connection, CopyData(b"1\n"), Flush(), Sync(), CopyData(b"2\n")) == [
        CopyData(b"1\n"),
        CopyData(b"2\n"),
    ]
    assert feed(connection, CopyDone(), Query("x")) == [CopyDone(), Query("x")]


def test_copy_in_simple_ended_by_the_server() -> None:
    connection = ready()
    feed(connection, Query("COPY t FROM STDIN"))
    connection.send(CopyInResponse(0, (0,)))
    feed(connection, CopyData(b"bad"))
    connection.send(ERROR, ReadyForQuery("I"))
    assert feed(connection, CopyData(b"more"), CopyDone(), Query("x")) == [Query("x")]


@pytest.mark.parametrize("end", [CopyDone(), CopyFail("why")])
def test_copy_in_extended(end: CopyDone | CopyFail) -> None:
    connection = ready()
    feed(connection, Execute(""))
    connection.send(CopyInResponse(0, (0,)))
    assert in_phase(connection, Phase.COPY_IN_EXTENDED)
    assert feed(connection, Sync(), CopyData(b"1"), end) == [CopyData(b"1"), end]
    assert in_phase(connection, Phase.EXTENDED)
    connection.send(ERROR)
    assert feed(connection, Execute(""), Sync()) == [Sync()]


def test_copy_in_extended_ended_by_the_server_skips_until_sync() -> None:
    connection = ready()
    feed(connection, Execute(""))
    connection.send(CopyInResponse(0, (0,)))
    connection.send(ERROR)
    assert feed(connection, CopyData(b"1"), CopyDone(), Parse("", ""), Sync()) == [Sync()]


@pytest.mark.parametrize(
    "message",
    [Query("x"), Terminate(), Parse("", "x"), Raw(b"y\0\0\0\x04")],
    ids=lambda each: type(each).__name__,
)
def test_other_messages_during_copy_in_are_refused_as_by_postgresql(postgres: str, message: FrontendMessage) -> None:
    data = exchange(postgres, Query("CREATE TEMP TABLE t (a int); COPY t FROM STDIN"), CopyData(b"1\n"), message)
    theirs = [each for each in s.read_backend(data) if isinstance(each, ErrorResponse)]
    connection = ready()
    feed(connection, Query("COPY t FROM STDIN"))
    connection.send(CopyInResponse(0, (0,)))
    feed(connection, CopyData(b"1\n"), message)
    ours = [each for each in s.read_backend(connection.data_to_send()) if isinstance(each, ErrorResponse)]
    fields = [(each.severity, each.sqlstate, each.message) for each in theirs]
    assert [(each.severity, each.sqlstate, each.message) for each in ours] == fields
    assert in_phase(connection, Phase.CLOSED)


# --- ends and limits ---


def test_messages_after_terminate_are_ignored() -> None:
    connection = ready()
    assert feed(connection, Terminate(), Query("late")) == [Terminate(), EOF]
    connection.receive_data(b"later")
    assert connection.bytes_waiting == 0
    assert connection.next_event() is EOF


def test_eof_follows_the_messages_sent_before_it() -> None:
    connection = ready()
    connection.receive_data(Query("x").serialize() + b"Q\0\0")
    connection.receive_eof()
    assert drain(connection) == [Query("x"), EOF]
    assert in_phase(connection, Phase.CLOSED)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_fatal_error_closes_the_connection_in_every_phase(phase: Phase) -> None:
    connection = Connection()
    connection._enter(phase)
    connection.send(ErrorResponse("FATAL", "57P01", "terminating connection due to administrator command"))
    assert in_phase(connection, Phase.CLOSED)
    assert connection.next_event() is EOF
    assert connection.data_to_send()


@pytest.mark.parametrize("code", [b"p", b"y", b"\0", b"\xff"])
def test_unknown_type_bytes(code: bytes) -> None:
    assert fatal(ready(), code + b"\0\0\0\x04") == f"invalid frontend message type {code[0]}"


@pytest.mark.parametrize("cls", [Describe, Execute, Close, Sync, Flush, Terminate, CopyDone, CopyFail])
def test_small_messages_are_refused_by_the_length_in_their_header(cls: type[Sync]) -> None:
    too_long = SMALL_MESSAGE_BYTES_MAX + 1
    assert fatal(ready(), cls.code + INT32.pack(too_long)) == "invalid message length"


@pytest.mark.parametrize("pieces", [1, 7, 20_006])
@pytest.mark.parametrize("cls", [Query, Parse, Bind, FunctionCall])
def test_a_message_that_is_too_long_is_dropped_with_an_error(cls: type[Query], pieces: int) -> None:
    connection = ready(message_bytes_max=20_000)
    body = b"B" * 19_997 + Query("SELECT 2").serialize()[:8]  # no byte of it is the type of a message
    data = cls.code + INT32.pack(len(body) + 4) + body
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        assert connection.next_event() is NEED_DATA
        assert connection.bytes_waiting < HEADER.size
        connection.receive_data(data[start : start + size])
        assert start < HEADER.size or not connection.is_at_call
    connection.receive_data(Sync().serialize() + Query("SELECT 1").serialize())
    with pytest.raises(PgError, match="message is too long") as caught:
        connection.next_event()
    assert (caught.value.sqlstate, caught.value.severity) == (SqlState.PROGRAM_LIMIT_EXCEEDED, Severity.ERROR)
    assert caught.value.detail == "The message has 20009 bytes, the limit is 20000."
    connection.send(ErrorResponse.of(caught.value))
    assert drain(connection) == [Sync(), Query("SELECT 1")]


def test_a_copy_data_message_that_is_too_long_fails_the_copy() -> None:
    connection = ready(message_bytes_max=20_000)
    connection.send(CopyInResponse(0, (0,)))
    connection.receive_data(CopyData(bytes(20_000)).serialize() + CopyDone().serialize())
    with pytest.raises(PgError, match="message is too long") as caught:
        connection.next_event()
    connection.send(ErrorResponse.of(caught.value))
    assert in_phase(connection, Phase.READY)
    assert connection.next_event() is NEED_DATA


def test_a_message_that_would_be_dropped_may_have_any_length() -> None:
    connection = ready(message_bytes_max=20_000)
    long = CopyData(bytes(30_000)).serialize()
    connection.receive_data(long + Query("SELECT 1").serialize())
    assert drain(connection) == [Query("SELECT 1")]


@pytest.mark.parametrize("cls", [Query, Parse, Bind, FunctionCall, CopyData])
def test_a_message_longer_than_postgresqls_limit_ends_the_connection(cls: type[Query]) -> None:
    connection = ready(message_bytes_max=20_000)
    connection.receive_data(cls.code + INT32.pack(20_000))
    assert connection.next_event() is NEED_DATA
    assert fatal(ready(), cls.code + INT32.pack(LARGE_MESSAGE_BYTES_MAX + 1)) == "invalid message length"


@pytest.mark.parametrize("length", [3, 0, -1, -(2**31)])
def test_invalid_lengths(length: int) -> None:
    assert fatal(ready(), b"Q" + INT32.pack(length)) == "invalid message length"


def test_the_connection_continues_after_a_malformed_body() -> None:
    connection = ready()
    connection.receive_data(b"Q\0\0\0\x05x" + Query("SELECT 1").serialize())
    with pytest.raises(PgError, match="invalid string in message") as caught:
        connection.next_event()
    assert caught.value.severity is Severity.ERROR
    assert in_phase(connection, Phase.READY)
    assert drain(connection) == [Query("SELECT 1")]


def test_a_malformed_terminate_ends_the_connection() -> None:
    assert fatal(ready(), b"X\0\0\0\x05x") == "invalid message format"


def test_data_to_send_empties_the_queue_and_does_not_copy_a_single_chunk() -> None:
    connection = ready()
    rows = bytes(1_000)
    connection.send_encoded(rows)
    assert connection.data_to_send() is rows
    connection.send(ParseComplete(), ReadyForQuery("T"))
    connection.send_encoded(b"x")
    assert connection.data_to_send() == b"1\0\0\0\x04Z\0\0\0\x05Tx"
    assert connection.data_to_send() == b""


# --- the tables, printed ---

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol-states.md"


def document() -> str:
    lines = [
        "# The phases of a connection",
        "",
        "A connection is in one of these phases. Each table lists the messages that are valid in the phase, and",
        "the phase that follows each of them. `dropped` means that the message is ignored. A message from the",
        "client that is not listed ends the connection (08P01, FATAL). An ErrorResponse of severity FATAL leads to",
        "`closed` from every phase.",
        "",
        "This page is generated from `RECEIVED` and `SENT` in `protocol/pgwire/connection.py`.",
    ]
    for phase in Phase:
        lines += ["", f"## {phase.value}", "", "| message | from | then |", "|---|---|---|"]
        for received, after in RECEIVED[phase].items():
            lines.append(f"| {received.__name__} | client | {'dropped' if after is None else after.value} |")
        for sent, after in SENT[phase].items():
            lines.append(f"| {sent.__name__} | server | {after.value} |")
    return "\n".join(lines) + "\n"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.protocol.test_connection"


def test_every_phase_is_documented() -> None:
    assert set(RECEIVED) == set(SENT) == set(Phase)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
