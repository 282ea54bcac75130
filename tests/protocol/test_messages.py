"""Each message is read back from its bytes, malformed bytes raise only PgError, and the bytes are PostgreSQL's."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import get_args
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.messages.backend import ErrorResponse, FieldDescription, NoticeResponse
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail
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
from protocol.pgwire.messages.sasl import AuthenticationSASL, AuthenticationSASLContinue, AuthenticationSASLFinal
from protocol.pgwire.messages.startup import AuthenticationCleartextPassword, CancelRequest, StartupMessage
from protocol.pgwire.messages.wire_format import INT32
from protocol.pgwire.types import INT8, numeric
from protocol.pgwire.utf8 import decode_utf8
from tests.protocol import strategies as s
from tests.protocol.strategies import Message


def body_start(message: Message) -> int:
    return len(message.code) + 4


def test_strategies_cover_every_message() -> None:
    assert set(s.ALL) == set(get_args(Message))


@given(s.messages, st.binary(max_size=9), st.binary(max_size=9))
def test_round_trip(message: Message, before: bytes, behind: bytes) -> None:
    """This is tested among other messages, too: a parser reads only its own bytes."""
    wire = message.serialize()
    start = body_start(message)
    assert wire[: len(message.code)] == message.code
    assert INT32.unpack_from(wire, len(message.code)) == (len(wire) - len(message.code),)
    data = before + wire + behind
    assert type(message).parse(data, len(before) + start, len(before) + len(wire)) == message


@given(s.messages, st.data())
def test_damaged_bodies_raise_pgerror_only(message: Message, data: st.DataObject) -> None:
    wire = bytearray(message.serialize())
    start = body_start(message)
    for _ in range(data.draw(st.integers(1, 3))):
        if len(wire) > start:
            wire[data.draw(st.integers(start, len(wire) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(wire[: data.draw(st.integers(start, len(wire)))]) + data.draw(st.binary(max_size=3))
    try:
        again = type(message).parse(cut, start, len(cut))
    except PgError:
        return
    assert type(message).parse(again.serialize(), start, len(again.serialize())) == again


@given(st.sampled_from(list(s.ALL)), st.binary(max_size=60))
def test_arbitrary_bodies_raise_pgerror_only(cls: type[Message], body: bytes) -> None:
    with suppress(PgError):
        cls.parse(body, 0, len(body))


@pytest.mark.parametrize(
    ("cls", "body", "message"),
    [
        (Query, b"SELECT 1", "invalid string in message"),
        (Query, b"SELECT 1\0\0", "invalid message format"),
        (Query, b"", "invalid string in message"),
        (Parse, b"\0\0\0\x02\0\0\0\x01", "insufficient data left in message"),
        (Parse, b"\0\0\0", "insufficient data left in message"),
        (Bind, b"\0\0\0\0\0\x01\0\0\0\x05ab\0\0", "insufficient data left in message"),
        (Bind, b"\0\0\0\0\0\x01\xff\xff\xff\xfeab\0\0", "insufficient data left in message"),
        (Bind, b"\0\0\0\0\0\0\0\0!", "invalid message format"),
        (Execute, b"\0\0\0\0", "insufficient data left in message"),
        (Describe, b"", "no data left in message"),
        (Describe, b"X\0", "invalid DESCRIBE message subtype 88"),
        (Close, b"X\0", "invalid CLOSE message subtype 88"),
        (Sync, b"\0", "invalid message format"),
        (CancelRequest, b"\x04\xd2\x16\x2e\0\0\0\x01", "insufficient data left in message"),
        (
            StartupMessage,
            b"\0\x03\0\0user\0me\0",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (
            StartupMessage,
            b"\0\x03\0\0user\0\0",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (StartupMessage, b"\0\x03\0\0", "invalid startup packet layout: expected terminator as last byte"),
    ],
)
def test_malformed_messages_are_refused_in_postgresqls_words(cls: type[Message], body: bytes, message: str) -> None:
    with pytest.raises(PgError) as caught:
        cls.parse(body, 0, len(body))
    startup = cls is StartupMessage and message.startswith("invalid startup")
    severity = Severity.FATAL if startup else Severity.ERROR
    assert (caught.value.sqlstate, caught.value.severity) == (SqlState.PROTOCOL_VIOLATION, severity)
    assert caught.value.message == message


def test_bind_with_contradictory_counts_is_an_ordinary_error() -> None:
    wire = Bind("", "", (0, 1), (b"a", b"b", b"c")).serialize()
    with pytest.raises(PgError, match="bind message has 2 parameter formats but 3 parameters") as caught:
        Bind.parse(wire, 5, len(wire))
    assert caught.value.severity is Severity.ERROR


def test_bind_counts_are_unsigned() -> None:
    bind = Bind("", "", (1,), (b"x",) * 65_535)
    assert Bind.parse(bind.serialize(), 5, len(bind.serialize())) == bind


def test_error_fields_in_order() -> None:
    error = PgError(SqlState.SYNTAX_ERROR, "no", detail="D.", hint="H.", position=7, where="W")
    assert ErrorResponse.of(error).serialize()[5:] == b"SERROR\0VERROR\0C42601\0Mno\0DD.\0HH.\0P7\0WW\0\0"
    assert NoticeResponse.of(Notice("hm")).serialize() == b"N\0\0\0\x20SNOTICE\0VNOTICE\0C00000\0Mhm\0\0"


def test_an_error_of_any_length_is_sent() -> None:
    wire = ErrorResponse.of(PgError(SqlState.INTERNAL_ERROR, "a\0b\ud800c")).serialize()
    assert [report.message for report in s.read_backend(wire) if isinstance(report, ErrorResponse)] == ["a?b?c"]


def test_field_of_a_type() -> None:
    assert FieldDescription.of("n", INT8, 1) == FieldDescription("n", 0, 0, 20, 8, -1, 1)
    assert FieldDescription.of("n", numeric(10, 2)) == FieldDescription("n", 0, 0, 1700, -1, 655366, 0)


# --- compared with a real PostgreSQL ---


def exchange(dsn: str, *messages: FrontendMessage, settings: dict[str, str] | None = None) -> bytes:
    """Everything that PostgreSQL sends to a client that sends `messages` and then Terminate."""
    url = urlsplit(dsn)
    startup = StartupMessage({"user": "postgres", "database": "postgres", **(settings or {})})
    with socket.create_connection((url.hostname, url.port), timeout=10) as peer:
        peer.sendall(b"".join(each.serialize() for each in (startup, *messages, Terminate())))
        return b"".join(iter(lambda: peer.recv(65_536), b""))


def test_postgresql_sends_and_accepts_the_same_bytes(postgres: str) -> None:
    """PostgreSQL accepts each of our frontend messages. Each of its messages is parsed and encoded to the same
    bytes."""
    data = exchange(
        postgres,
        Query("SET client_min_messages = error; SELECT 1 AS a, NULL::text, 'x'::varchar(3), 1.5::numeric(10,2)"),
        Query(""),
        Query("LISTEN c; NOTIFY c, 'payload'"),
        Parse("q", "SELECT $1 + $2, generate_series(1, 3)", (20, 0)),
        Describe("S", "q"),
        Bind("p", "q", (0, 1), (b"1", (2).to_bytes(8, "big")), (1,)),
        Describe("P", "p"),
        Execute("p", 2),
        Flush(),
        Close("P", "p"),
        Parse("", "SET work_mem = '4MB'"),
        Describe("S", ""),
        Sync(),
        CopyData(b"stray"),
        CopyFail("stray"),
        CopyDone(),
        Query("BEGIN; CREATE TEMP TABLE t (a int, b text); COPY t FROM STDIN"),
        CopyData(b"1\ta\n2"),
        Sync(),
        CopyData(b"\tb\n"),
        CopyDone(),
        Query("COPY t TO STDOUT"),
        Query("COPY t TO STDOUT (FORMAT binary)"),
        FunctionCall(b"\0\0\0\0\0\0\0\0\0\0"),
        settings={"_pq_.none": "1"},
    )
    received = s.read_backend(data)
    seen = {type(message) for message in received}
    authentication = {
        AuthenticationCleartextPassword,
        AuthenticationSASL,
        AuthenticationSASLContinue,
        AuthenticationSASLFinal,
    }
    assert set(s.BACKEND) - seen == {*authentication, NoticeResponse}
    reports = [message for message in received if isinstance(message, ErrorResponse)]
    assert len(reports) == 1  # of the function call; its fields F, L and R are not stored
    rest = [message.serialize() for message in received if not isinstance(message, ErrorResponse)]
    at = 0
    for wire in rest:
        at = data.index(wire, at) + len(wire)


@pytest.mark.parametrize(
    "text",
    [b"\xff", b"a\x80b", b"\xe2\x28\xa1", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok \xc3", b"\xc0\xaf", b"\xf8\x88"],
)
def test_invalid_utf8_is_refused_in_postgresqls_words(postgres: str, text: bytes) -> None:
    with pytest.raises(PgError) as caught:
        decode_utf8(text)
    wire = b"Q" + INT32.pack(len(text) + 5) + text + b"\0"
    replies = s.read_backend(exchange(postgres, Raw(wire)))  # type: ignore[arg-type]
    (report,) = [message for message in replies if isinstance(message, ErrorResponse)]
    assert (report.sqlstate, report.message) == (caught.value.sqlstate, caught.value.message)
    assert (report.severity, caught.value.severity) == ("ERROR", Severity.ERROR)


class Raw:
    """A message with arbitrary bytes."""

    def __init__(self, wire: bytes) -> None:
        self.wire = wire

    def serialize(self) -> bytes:
        return self.wire
