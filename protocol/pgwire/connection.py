"""The server side of one connection of protocol 3.0: bytes in, events out; messages in, bytes out.

    connection.receive_data(data)
    while (event := connection.next_event()) is not NEED_DATA:
        ...  # act on it, connection.send(...)
    transport.write(connection.data_to_send())

There is no IO and no clock. All phase changes are in this file, defined by the tables `RECEIVED` and `SENT`. Receiving
a message takes time linear in its length, however small the parts in which it arrives.

`next_event` parses a message in place, in the bytes received last. A message that is split between receptions is
copied once, after its last byte has arrived. Nothing is parsed ahead: a phase change by `send` (CopyInResponse,
ErrorResponse) applies to the next message even if its bytes arrived earlier. The session therefore finishes each event
before it reads the next one. `bytes_waiting` shows when to stop reading from the socket meanwhile.

A phase determines the meaning of the *client's next message*. COPY OUT has no phase: like PostgreSQL, the session reads
no messages while it sends rows; messages that arrive meanwhile are read afterwards.

Warning: `send_encoded` does not examine its bytes. Messages that change the phase (`SENT`) must be sent with `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from protocol.pgwire.call import BIND, PARSE, CallShape, bound_statement, unnamed_parse
from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import BackendMessage, ErrorResponse
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
    PROTOCOL_VERSION,
    STARTUP_BYTES_MAX,
    AuthenticationCleartextPassword,
    AuthenticationOk,
    CancelRequest,
    GSSENCRequest,
    NegotiateProtocolVersion,
    PasswordMessage,
    SSLRequest,
    StartupMessage,
    parse_opening,
    unsupported_version,
)
from protocol.pgwire.messages.wire_format import (
    HEADER,
    INT32,
    LARGE_MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SMALL_MESSAGE_BYTES_MAX,
    violation,
)


class Signal(Enum):
    """Results of `next_event` when there is no message."""

    NEED_DATA = "need data"
    EOF = "eof"
    DROPPED = "dropped"


NEED_DATA: Final = Signal.NEED_DATA  # no complete message has arrived: call `receive_data` first
EOF: Final = Signal.EOF  # no more messages: the client terminated, disconnected or was refused
DROPPED: Final = Signal.DROPPED  # DROPPED_MAX messages were dropped: call `next_event` again, perhaps later
DROPPED_MAX = 1_000


class Phase(Enum):
    """Determines which messages the client may send next."""

    STARTUP = "startup"
    AUTHENTICATION = "authentication"
    PASSWORD = "password"
    SASL = "SASL"
    SASL_CONTINUED = "SASL, continued"
    READY = "ready"
    EXTENDED = "extended"
    SKIP_UNTIL_SYNC = "skip until sync"
    COPY_IN = "copy in"
    COPY_IN_EXTENDED = "copy in, extended"
    CLOSED = "closed"


# Transitions on client messages: the phase after the message, or None if it is dropped without an event.
# A message that is not in the phase's row ends the connection. (postgres.c SocketBackend, copyfromparse.c CopyGetData)
_COMMANDS: dict[type[FrontendMessage], Phase | None] = {
    Query: Phase.READY,
    FunctionCall: Phase.READY,
    Parse: Phase.EXTENDED,
    Bind: Phase.EXTENDED,
    Describe: Phase.EXTENDED,
    Execute: Phase.EXTENDED,
    Close: Phase.EXTENDED,
    Flush: Phase.EXTENDED,
    Sync: Phase.READY,
    Terminate: Phase.CLOSED,
    CopyData: None,  # the rest of a COPY that failed on the server
    CopyDone: None,
    CopyFail: None,
}
RECEIVED: dict[Phase, dict[type[FrontendMessage], Phase | None]] = {
    Phase.STARTUP: {
        SSLRequest: Phase.STARTUP,
        GSSENCRequest: Phase.STARTUP,
        CancelRequest: Phase.CLOSED,
        StartupMessage: Phase.AUTHENTICATION,
    },
    Phase.AUTHENTICATION: {Terminate: Phase.CLOSED},
    Phase.PASSWORD: {PasswordMessage: Phase.AUTHENTICATION, Terminate: Phase.CLOSED},
    Phase.SASL: {SASLInitialResponse: Phase.AUTHENTICATION, Terminate: Phase.CLOSED},
    Phase.SASL_CONTINUED: {SASLResponse: Phase.AUTHENTICATION, Terminate: Phase.CLOSED},
    Phase.READY: _COMMANDS,
    Phase.EXTENDED: _COMMANDS,
    Phase.SKIP_UNTIL_SYNC: {
        **dict.fromkeys(_COMMANDS, None),
        Sync: Phase.READY,
        Terminate: Phase.CLOSED,
    },
    Phase.COPY_IN: {
        CopyData: Phase.COPY_IN,
        CopyDone: Phase.READY,
        CopyFail: Phase.READY,
        Flush: None,  # a client library may send these before it notices that its command was a COPY
        Sync: None,
    },
    Phase.COPY_IN_EXTENDED: {
        CopyData: Phase.COPY_IN_EXTENDED,
        CopyDone: Phase.EXTENDED,
        CopyFail: Phase.EXTENDED,
        Flush: None,
        Sync: None,
    },
    Phase.CLOSED: {},
}
# Transitions on server messages. A message that is not in the phase's row changes nothing. An ErrorResponse with
# severity FATAL leads to CLOSED from every phase.
SENT: dict[Phase, dict[type[BackendMessage], Phase]] = {
    Phase.STARTUP: {ErrorResponse: Phase.CLOSED},
    Phase.AUTHENTICATION: {
        AuthenticationCleartextPassword: Phase.PASSWORD,
        AuthenticationSASL: Phase.SASL,
        AuthenticationSASLContinue: Phase.SASL_CONTINUED,
        AuthenticationSASLFinal: Phase.AUTHENTICATION,
        AuthenticationOk: Phase.READY,
        ErrorResponse: Phase.CLOSED,
    },
    Phase.PASSWORD: {ErrorResponse: Phase.CLOSED},
    Phase.SASL: {ErrorResponse: Phase.CLOSED},
    Phase.SASL_CONTINUED: {ErrorResponse: Phase.CLOSED},
    Phase.READY: {CopyInResponse: Phase.COPY_IN, ErrorResponse: Phase.READY},
    Phase.EXTENDED: {CopyInResponse: Phase.COPY_IN_EXTENDED, ErrorResponse: Phase.SKIP_UNTIL_SYNC},
    Phase.SKIP_UNTIL_SYNC: {ErrorResponse: Phase.SKIP_UNTIL_SYNC},
    Phase.COPY_IN: {ErrorResponse: Phase.READY},
    Phase.COPY_IN_EXTENDED: {ErrorResponse: Phase.SKIP_UNTIL_SYNC},
    Phase.CLOSED: {ErrorResponse: Phase.CLOSED},
}

_COMMAND_PHASES = (Phase.READY, Phase.EXTENDED)
_STARTUP_PHASES = (
    *(Phase.STARTUP, Phase.AUTHENTICATION, Phase.PASSWORD, Phase.SASL, Phase.SASL_CONTINUED),
    Phase.CLOSED,
)  # every error is FATAL

_SASL_PHASES = (Phase.SASL, Phase.SASL_CONTINUED)

# Messages whose length depends on user data; all others are small.
_LARGE = (Query, Parse, Bind, FunctionCall, CopyData)

_Parser = Callable[[bytes, int, int], FrontendMessage]
_Reading = tuple[_Parser | None, Phase, bool]


def _readings(phase: Phase) -> dict[int, _Reading]:
    """A phase's row of `RECEIVED` by type byte: the parser (None: drop), the next phase, whether it may be large."""
    return {
        cls.code[0]: (None if after is None else cls.parse, phase if after is None else after, cls in _LARGE)
        for cls, after in RECEIVED[phase].items()
        if cls.code
    }


# Keyed by name: hashing an enum member is a Python call, which would be made for each message.
_READINGS: dict[str, dict[int, _Reading]] = {phase.name: _readings(phase) for phase in Phase}
_FAST_BYTES_MAX = {
    phase.name: SASL_BYTES_MAX + INT32.size if phase in _SASL_PHASES else SMALL_MESSAGE_BYTES_MAX for phase in Phase
}
"""The length of a message up to which it needs no further checks, by phase."""
_SENT: dict[str, dict[type[BackendMessage], Phase]] = {phase.name: sent for phase, sent in SENT.items()}


class Connection:
    """The server's side of one connection.

    A Query, Parse, Bind, FunctionCall or CopyData of more than `message_bytes_max` is dropped, with an error (54000).
    """

    def __init__(self, *, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.parameters: dict[str, str] = {}
        """Parameters of the StartupMessage without protocol options; empty before it has arrived."""
        self.protocol_version: tuple[int, int] = PROTOCOL_VERSION
        """The version that the client requested; the server always speaks 3.0."""
        self._message_bytes_max = message_bytes_max
        self._data = b""  # consumed up to `_at`
        self._at = 0
        self._pending = bytearray()  # received after `_data`
        self._out: list[bytes] = []
        self._no_more_data = False
        self._skip = 0  # bytes of an oversized message that are still to be dropped
        self._after_skip: tuple[Phase, PgError | None] = (Phase.CLOSED, None)
        self._encryption_refused: set[type[FrontendMessage]] = set()
        self._enter(Phase.STARTUP)

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def bytes_waiting(self) -> int:
        """The number of bytes received but not yet returned as messages.

        The listener pauses reading when there are many, but never while the session waits after NEED_DATA, because they
        may be the first part of one long message.
        """
        return len(self._data) - self._at + len(self._pending)

    def receive_data(self, data: bytes) -> None:
        """Appends bytes received from the client. In phase CLOSED they are dropped."""
        if self._phase is Phase.CLOSED:
            return
        if self._pending or self._at < len(self._data):
            self._pending += data
        else:
            self._data, self._at = data, 0

    def receive_eof(self) -> None:
        """The client has closed its end. `next_event` returns the complete messages received before, then EOF."""
        self._no_more_data = True

    def next_event(self) -> FrontendMessage | Signal:
        """The next message, or NEED_DATA, or EOF. DROPPED after many messages that are not handled, as after an error.

        Raises PgError if the message is invalid; send its ErrorResponse. If it is FATAL, `phase` is CLOSED: flush and
        close. Otherwise continue as after any failed command: in phase READY send ReadyForQuery; in phase EXTENDED the
        ErrorResponse makes the connection skip messages until Sync.
        """
        try:
            data, start = self._data, self._at
            if len(data) - start >= HEADER.size:
                # Fast path for the common case: a small complete message.
                code, length = HEADER.unpack_from(data, start)
                reading = self._readings.get(code)
                end = start + length + 1
                if reading is not None and 4 <= length <= self._fast_bytes_max and end <= len(data):
                    parse, after, _ = reading
                    if parse is not None:
                        self._at = end
                        if after is not self._phase:
                            self._enter(after)
                        return parse(data, start + HEADER.size, end)
            elif start == len(data) and not self._pending and not self._no_more_data and self._readings:
                self._data, self._at = b"", 0  # frees the memory of the last message while the client is idle
                return NEED_DATA
            return self._next_opening() if self._phase is Phase.STARTUP else self._next_message()
        except PgError as error:
            if self._phase in _STARTUP_PHASES:
                error.severity = Severity.FATAL
            if error.severity is Severity.FATAL:
                self._enter(Phase.CLOSED)
            raise

    @property
    def is_at_call(self) -> bool:
        """Whether the next message is a Bind or a Parse, one of which is the first message of a call."""
        return self._at < len(self._data) and self._data[self._at] in (BIND, PARSE) and not self._skip

    def unnamed_parse(self) -> bytes | None:
        """The next message if it is a Parse of the unnamed statement before a Bind of it, else None."""
        return unnamed_parse(self._data, self._at) if self._phase in _COMMAND_PHASES else None

    def bound_statement(self) -> bytes | None:
        """The name of the next call's statement; None if the next message is not a Bind with the unnamed portal."""
        return bound_statement(self._data, self._at) if self._phase in _COMMAND_PHASES else None

    def call_shape(self, start: int = 0) -> CallShape | None:
        """The shape of the call after the next `start` bytes; None if there is no complete call. Consumes nothing."""
        return CallShape.of(self._data, self._at + start) if self._phase in _COMMAND_PHASES else None

    def match_call(self, shape: CallShape, start: int = 0) -> tuple[list[bytes | None], int] | None:
        """If the call after the next `start` bytes has this shape: its parameter values, and the argument of
        `consume_call`. Else None.
        """
        return shape.read(self._data, self._at + start) if self._phase in _COMMAND_PHASES else None

    def consume_call(self, end: int, *, synced: bool) -> None:
        """Consumes the messages up to the end of a `match_call`. `synced`: its answer must end with ReadyForQuery."""
        self._at = end
        phase = Phase.READY if synced else Phase.EXTENDED
        if self._phase is not phase:
            self._enter(phase)

    def send(self, *messages: BackendMessage) -> None:
        """Queues messages for `data_to_send`."""
        for message in messages:
            self._out.append(message.serialize())
            after = self._sent.get(type(message))
            if after is not None:
                fatal = type(message) is ErrorResponse and message.severity in (Severity.FATAL, Severity.PANIC)
                self._enter(Phase.CLOSED if fatal else after)

    def send_encoded(self, data: bytes) -> None:
        """Queues bytes unchanged: framed rows, or the one-byte answer to SSLRequest and GSSENCRequest."""
        self._out.append(data)

    def accept_tls(self) -> None:
        """Queues the answer `S` to the SSLRequest that was returned last. What follows must be received through TLS.

        PgError 08P01, FATAL, if the client has sent more before the answer: a man in the middle could have inserted it,
        and it would be taken for a part of the encrypted connection (CVE-2021-23214).
        """
        self.encrypted()
        if self.bytes_waiting:
            self._enter(Phase.CLOSED)
            raise violation(
                "received unencrypted data after SSL request",
                "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.",
            )
        self._out.append(b"S")

    def encrypted(self) -> None:
        """The connection has begun with TLS, or will continue with it: a further request for encryption is an error."""
        self._encryption_refused |= {SSLRequest, GSSENCRequest}

    def data_to_send(self) -> bytes:
        """All bytes queued since the last call. If only one object was queued, it is returned without a copy."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._fast_bytes_max = _FAST_BYTES_MAX[phase._name_]
        self._readings = _READINGS[phase._name_]
        self._sent = _SENT[phase._name_]
        if phase is Phase.CLOSED:
            self._data, self._at = b"", 0
            self._pending.clear()

    def _has(self, size: int) -> bool:
        """Whether the next `size` bytes have arrived. If so, they are contiguous in `_data`."""
        here = len(self._data) - self._at
        if here >= size:
            return True
        if here + len(self._pending) < size:
            return False
        self._data = self._data[self._at :] + self._pending
        self._at = 0
        self._pending.clear()
        return True

    def _starved(self) -> Signal:
        """NEED_DATA, or EOF if no more data will be read. An incomplete last message is dropped without an error."""
        if not self._no_more_data and self._phase is not Phase.CLOSED:
            return NEED_DATA
        self._enter(Phase.CLOSED)
        return EOF

    def _next_message(self) -> FrontendMessage | Signal:
        dropped = 0
        while self._skipped() and self._has(HEADER.size):
            code, length = HEADER.unpack_from(self._data, self._at)
            reading = self._readings.get(code)
            if reading is None:
                raise self._unexpected(code)
            parse, after, large = reading
            if not 4 <= length <= SMALL_MESSAGE_BYTES_MAX:
                self._check_length(length, LARGE_MESSAGE_BYTES_MAX if large else SMALL_MESSAGE_BYTES_MAX)
            if self._phase in _SASL_PHASES and length > SASL_BYTES_MAX + INT32.size:
                raise violation("invalid message length")
            if large and length > self._message_bytes_max:
                self._begin_skip(length, after, dropped=parse is None)
                continue
            if not self._has(length + 1):
                break
            data, start = self._data, self._at
            self._at = end = start + length + 1
            if after is not self._phase:
                self._enter(after)
            if parse is not None:
                return parse(data, start + HEADER.size, end)
            dropped += 1
            if dropped == DROPPED_MAX:
                return DROPPED
        return self._starved()

    def _begin_skip(self, length: int, after: Phase, *, dropped: bool) -> None:
        """Drops an oversized message as its bytes arrive. Its error is raised after its last byte has arrived.

        The client may not read before it has sent the message, so an error sent earlier could be lost.
        """
        error = PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "message is too long",
            detail=f"The message has {length} bytes, the limit is {self._message_bytes_max}.",
            hint="Load rows with COPY FROM STDIN, or send the statement in parts.",
        )
        self._skip = length + 1
        self._after_skip = after, None if dropped else error
        self._readings = {}  # its bytes must not be parsed as messages

    def _skipped(self) -> bool:
        """Drops the available bytes of an oversized message. Returns whether its last byte has arrived."""
        if not self._skip:
            return True
        here = min(self._skip, len(self._data) - self._at)
        self._at += here
        self._skip -= here
        pending = min(self._skip, len(self._pending))
        del self._pending[:pending]
        self._skip -= pending
        if self._skip:
            return False
        after, error = self._after_skip
        self._enter(after)
        if error is not None:
            raise error
        return True

    def _check_length(self, length: int, limit: int) -> None:
        if length < 4:
            raise violation("invalid message length")
        if length > limit:
            raise violation("invalid message length", f"The message has {length} bytes, the limit is {limit}.")

    def _unexpected(self, code: int) -> PgError:
        match self._phase:
            case Phase.AUTHENTICATION | Phase.PASSWORD:
                return violation(f"expected password response, got message type {code}")
            case Phase.SASL | Phase.SASL_CONTINUED:
                return violation(f"expected SASL response, got message type {code}")
            case Phase.COPY_IN | Phase.COPY_IN_EXTENDED:
                # As in PostgreSQL, the COPY fails first, then the connection.
                reason = f"unexpected message type 0x{code:02X} during COPY from stdin"
                self.send(ErrorResponse.of(PgError(SqlState.PROTOCOL_VIOLATION, reason)))
                return violation("terminating connection because protocol synchronization was lost")
            case _:
                return violation(f"invalid frontend message type {code}")

    def _next_opening(self) -> FrontendMessage | Signal:
        if not self._has(INT32.size):
            return self._starved()
        (length,) = INT32.unpack_from(self._data, self._at)
        if not 8 <= length <= STARTUP_BYTES_MAX + 4:
            raise violation("invalid length of startup packet")
        if not self._has(length):
            return self._starved()
        start = self._at
        self._at += length
        packet = parse_opening(self._data, start + 4, start + length)
        match packet:
            case SSLRequest() | GSSENCRequest():
                if type(packet) in self._encryption_refused:
                    raise unsupported_version(packet.request_code)
                self._encryption_refused.add(type(packet))
            case StartupMessage():
                self._take_startup(packet)
        after = RECEIVED[Phase.STARTUP][type(packet)]
        assert after is not None
        self._enter(after)
        return packet

    def _take_startup(self, startup: StartupMessage) -> None:
        self.protocol_version = startup.version
        unknown = tuple(name for name in startup.parameters if name.startswith("_pq_."))
        self.parameters = {k: v for k, v in startup.parameters.items() if not k.startswith("_pq_.")}
        if unknown or startup.version > PROTOCOL_VERSION:
            self.send(NegotiateProtocolVersion(unknown))
