"""Damaged messages to the state machine of the wire protocol."""

from __future__ import annotations

import struct
from collections import Counter
from random import Random

import pytest

from protocol.pgwire.connection import EOF, NEED_DATA, RECEIVED, Connection, Phase
from protocol.pgwire.errors import PgError
from protocol.pgwire.messages.backend import ErrorResponse
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
    AuthenticationSASL,
    AuthenticationSASLContinue,
    SASLInitialResponse,
    SASLResponse,
)
from protocol.pgwire.messages.startup import (
    AuthenticationCleartextPassword,
    AuthenticationOk,
    CancelRequest,
    GSSENCRequest,
    PasswordMessage,
    SSLRequest,
    StartupMessage,
)
from tests.fuzz.limits import limited
from tests.fuzz.mutations import MESSAGES, damaged, pieces, rearranged, seeded

pytestmark = pytest.mark.fuzz

OPENINGS = [
    message.serialize()
    for message in (
        StartupMessage({"user": "ann", "database": "materialize", "options": "-c statement_timeout=5", "_pq_.x": "1"}),
        SSLRequest(),
        GSSENCRequest(),
        CancelRequest(7, 12_345),
    )
]
LOGINS = [
    message.serialize()
    for message in (
        PasswordMessage("secret"),
        SASLInitialResponse("SCRAM-SHA-256", b"n,,n=,r=rOprNGfwEbeRWgbNEkqO"),
        SASLResponse(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ),
    )
]
COMMANDS = [
    message.serialize()
    for message in (
        Query("SELECT 1; SELECT 'é'"),
        Query(""),
        Parse("s", "SELECT $1::int, $2::text", (23, 25)),
        Parse("", "INSERT INTO t VALUES ($1)", ()),
        Bind("", "s", (1, 0), (b"\0\0\0\x07", b"text"), (1,)),
        Bind("p", "", (), (None,), ()),
        Bind("", "s", (0,), (b"7", None), (0, 1)),
        Describe("S", "s"),
        Describe("P", ""),
        Execute("", 0),
        Execute("p", 10),
        Close("S", "s"),
        Close("P", "p"),
        Flush(),
        Sync(),
        Sync(),
        CopyData(b"1\t2\n"),
        CopyDone(),
        CopyFail("stopped"),
        FunctionCall(b"\0\0\0\x01\0\0"),
        Terminate(),
    )
]
CALL = [COMMANDS[4], COMMANDS[8], COMMANDS[9], COMMANDS[14]]  # is answered in one step
COPY = "COPY t FROM STDIN"
_DATA = CopyData(b"1\t2\n")
_EXTENDED = (Parse("", COPY, ()), Bind("p", "", (), (None,), ()), Execute("p", 0))
COPIES = [
    [message.serialize() for message in messages]
    for messages in (
        (Query(COPY), _DATA, _DATA, _DATA, Sync(), CopyDone()),
        (Query(COPY), Flush(), CopyData(b""), CopyFail("stopped")),
        (*_EXTENDED, Sync(), _DATA, Flush(), CopyDone(), Sync()),
        (*_EXTENDED, _DATA, CopyFail("stopped"), Sync()),
    )
]
MESSAGE_BYTES_MAX = 2_000  # less than what damaged lengths state: such a message is dropped as its bytes arrive

Seen = Counter[tuple[str, str]]


def broken(message: bytes, random: Random) -> bytes:
    """A damaged message; mostly one whose length is that of its body, so that the body is parsed."""
    if random.random() < 0.2 or message in OPENINGS:
        return damaged(message, random)
    body = damaged(message[5:], random)
    return message[:1] + struct.pack(">i", len(body) + 4) + body


def conversation(random: Random) -> list[bytes]:
    """A login and commands, with no or a few damaged, missing, repeated or exchanged messages."""
    found = [random.choice(OPENINGS[1:]) for _ in range(random.choice((0, 0, 0, 1, 2)))] + OPENINGS[:1]
    match random.randrange(10):
        case 0:
            found += LOGINS[:1]
        case 1:
            found += LOGINS[1:]
        case 2:
            found.append(random.choice((*LOGINS, COMMANDS[-1])))
    for _ in range(random.choice((1, 2, 4))):
        match random.randrange(5):
            case 0:
                found += random.choice(COPIES)
            case 1:
                found += CALL * random.choice((1, 2))
            case _:
                found += [random.choice(COMMANDS) for _ in range(random.choice((2, 5)))]
    if random.random() < 0.5:
        found = rearranged(found, COMMANDS, random)
    damages = random.choice((0, 1, 1, 3))
    return [broken(message, random) if random.random() * len(found) < damages else message for message in found]


def authentication(messages: list[bytes], random: Random) -> type | None:
    """The request for the password: most often the one that the client expects, else any. None: there is no answer."""
    if random.random() < 0.05:
        return random.choice((AuthenticationCleartextPassword, AuthenticationSASL, None))
    if LOGINS[0] in messages:
        return AuthenticationCleartextPassword
    return AuthenticationSASL if LOGINS[1] in messages or LOGINS[2] in messages else AuthenticationOk


def answer(connection: Connection, event: FrontendMessage, requested: type | None, random: Random) -> None:
    """Sends what a server may answer. This may change the phase."""
    match event:
        case StartupMessage() if requested is not None:
            connection.send(AuthenticationSASL(("SCRAM-SHA-256",)) if requested is AuthenticationSASL else requested())
        case SASLInitialResponse():
            connection.send(AuthenticationSASLContinue(b"r=1,s=2,i=4096"))
        case PasswordMessage() | SASLResponse():
            connection.send(AuthenticationOk())
        case SSLRequest() | GSSENCRequest():
            connection.send_encoded(b"N")
        case Query(text) if "COPY" in text:
            connection.send(CopyInResponse(0, (0,)))
        case Execute("p", 0):
            connection.send(CopyInResponse(0, (0,)))
        case Parse() | Execute() | CopyData() if random.random() < 0.05:
            connection.send(ErrorResponse("ERROR", "42601", "wrong"))


def run(messages: list[bytes], random: Random, seen: Seen) -> int:
    """Returns the number of messages that were read. Only PgError is raised, and the last event is EOF."""
    connection, events, received = Connection(message_bytes_max=MESSAGE_BYTES_MAX), 0, 0
    requested = authentication(messages, random)
    for data in (*pieces(b"".join(messages), random), None):
        if data is None:
            connection.receive_eof()
        else:
            connection.receive_data(data)
            received += len(data)
        while True:
            phase = connection.phase.name
            parse = connection.unnamed_parse() if connection.is_at_call else None
            if parse is not None or (connection.is_at_call and connection.bound_statement() is not None):
                start = len(parse or b"")
                shape = connection.call_shape(start)
                if shape is not None and (found := connection.match_call(shape, start)) is not None:
                    connection.consume_call(found[1], synced=shape.synced)
                    events += 3 + shape.synced + (parse is not None)
                    seen[phase, "call"] += 1
                    continue
            before = connection.bytes_waiting
            try:
                event = connection.next_event()
            except PgError as error:
                connection.send(ErrorResponse.of(error))
                events += 1
                seen[phase, "error"] += 1
                continue
            seen[phase, type(event).__name__] += 1
            if event is NEED_DATA or event is EOF:
                break
            events += 1
            assert connection.bytes_waiting < before
            answer(connection, event, requested, random)  # type: ignore[arg-type]
        assert connection.bytes_waiting <= received
    assert event is EOF
    assert connection.phase is Phase.CLOSED
    assert events <= received
    return events


def test_damaged_conversations() -> None:
    """Each message of each phase is read, and each phase has errors."""
    count, random = 0, seeded("wire")
    seen: Seen = Counter()
    with limited(seconds_max=1) as limits:
        while count < MESSAGES:
            messages = conversation(random)
            with limits.of(messages):
                count += run(messages, random, seen)
    print(f"{count:,} messages")
    if count >= 200_000:
        unseen = {
            (phase.name, name)
            for phase, received in RECEIVED.items()
            for name in (*(kind.__name__ for kind, after in received.items() if after is not None), "error")
        }
        unseen |= {("READY", "call"), ("EXTENDED", "call")}
        unseen -= set(seen)
        assert unseen == {(Phase.CLOSED.name, "error")}, unseen
