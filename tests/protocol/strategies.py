"""Hypothesis strategies for every protocol message, and a parser for the messages that a server sends."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from protocol.pgwire.messages.backend import (
    BackendMessage,
    BindComplete,
    CloseComplete,
    CommandComplete,
    DataRow,
    EmptyQueryResponse,
    ErrorResponse,
    FieldDescription,
    NoData,
    NoticeResponse,
    NotificationResponse,
    ParameterDescription,
    ParameterStatus,
    ParseComplete,
    PortalSuspended,
    ReadyForQuery,
    RowDescription,
)
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail, CopyInResponse, CopyOutResponse
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
    AuthenticationSASLFinal,
    SASLInitialResponse,
    SASLResponse,
)
from protocol.pgwire.messages.startup import (
    AuthenticationCleartextPassword,
    AuthenticationOk,
    BackendKeyData,
    CancelRequest,
    GSSENCRequest,
    NegotiateProtocolVersion,
    PasswordMessage,
    SSLRequest,
    StartupMessage,
)
from protocol.pgwire.messages.wire_format import HEADER

Message = FrontendMessage | BackendMessage

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
formats = st.integers(0, 1)
oids = st.integers(0, 2**32 - 1)
values = st.lists(st.none() | st.binary(max_size=20), max_size=5).map(tuple)
kinds = st.sampled_from(["S", "P"])


def tuples(elements: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(elements, max_size=5).map(tuple)


@st.composite
def binds(draw: st.DrawFn) -> Bind:
    parameters = draw(values)
    count = draw(st.sampled_from([0, 1, len(parameters)]))
    parameter_formats = tuple(draw(formats) for _ in range(count))
    return Bind(draw(texts), draw(texts), parameter_formats, parameters, draw(tuples(formats)))


fields = st.builds(
    FieldDescription,
    texts,
    oids,
    st.integers(-(2**15), 2**15 - 1),
    oids,
    st.integers(-2, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    formats,
)
reports = (
    texts,
    texts,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | st.integers(1, 2**31),
    *[st.none() | texts] * 6,
)
versions = st.tuples(st.just(3), st.integers(0, 2**16 - 1))

OPENING: dict[type[Message], st.SearchStrategy[Message]] = {
    StartupMessage: st.builds(StartupMessage, st.dictionaries(names, texts, max_size=5), versions),
    SSLRequest: st.builds(SSLRequest),
    GSSENCRequest: st.builds(GSSENCRequest),
    CancelRequest: st.builds(CancelRequest, oids, oids),
}
FRONTEND: dict[type[Message], st.SearchStrategy[Message]] = {
    PasswordMessage: st.builds(PasswordMessage, texts),
    SASLInitialResponse: st.builds(SASLInitialResponse, texts, st.none() | st.binary(max_size=40)),
    SASLResponse: st.builds(SASLResponse, st.binary(max_size=40)),
    Query: st.builds(Query, texts),
    Parse: st.builds(Parse, texts, texts, tuples(oids)),
    Bind: binds(),
    Describe: st.builds(Describe, kinds, texts),
    Execute: st.builds(Execute, texts, st.integers(-(2**31), 2**31 - 1)),
    Close: st.builds(Close, kinds, texts),
    Sync: st.builds(Sync),
    Flush: st.builds(Flush),
    Terminate: st.builds(Terminate),
    CopyData: st.builds(CopyData, st.binary(max_size=40)),
    CopyDone: st.builds(CopyDone),
    CopyFail: st.builds(CopyFail, texts),
    FunctionCall: st.builds(FunctionCall, st.binary(max_size=40)),
}
BACKEND: dict[type[Message], st.SearchStrategy[Message]] = {
    AuthenticationOk: st.builds(AuthenticationOk),
    AuthenticationCleartextPassword: st.builds(AuthenticationCleartextPassword),
    AuthenticationSASL: st.builds(AuthenticationSASL, st.lists(names, max_size=3).map(tuple)),
    AuthenticationSASLContinue: st.builds(AuthenticationSASLContinue, st.binary(max_size=40)),
    AuthenticationSASLFinal: st.builds(AuthenticationSASLFinal, st.binary(max_size=40)),
    NegotiateProtocolVersion: st.builds(NegotiateProtocolVersion, st.lists(texts, max_size=3).map(tuple), versions),
    ParameterStatus: st.builds(ParameterStatus, texts, texts),
    BackendKeyData: st.builds(BackendKeyData, oids, oids),
    NotificationResponse: st.builds(NotificationResponse, oids, texts, texts),
    ReadyForQuery: st.builds(ReadyForQuery, st.sampled_from(["I", "T", "E"])),
    RowDescription: st.builds(RowDescription, st.lists(fields, max_size=4).map(tuple)),
    ParameterDescription: st.builds(ParameterDescription, tuples(oids)),
    DataRow: st.builds(DataRow, values),
    NoData: st.builds(NoData),
    ParseComplete: st.builds(ParseComplete),
    BindComplete: st.builds(BindComplete),
    CloseComplete: st.builds(CloseComplete),
    PortalSuspended: st.builds(PortalSuspended),
    EmptyQueryResponse: st.builds(EmptyQueryResponse),
    CommandComplete: st.builds(CommandComplete, texts),
    CopyInResponse: st.builds(CopyInResponse, formats, tuples(formats)),
    CopyOutResponse: st.builds(CopyOutResponse, formats, tuples(formats)),
    CopyData: st.builds(CopyData, st.binary(max_size=40)),
    CopyDone: st.builds(CopyDone),
    ErrorResponse: st.builds(ErrorResponse, *reports),
    NoticeResponse: st.builds(NoticeResponse, *reports),
}
AUTHENTICATION = (PasswordMessage, SASLInitialResponse, SASLResponse)
"""The messages of clients that are valid only during authentication. They have the same type byte."""
ALL: dict[type[Message], st.SearchStrategy[Message]] = {**OPENING, **FRONTEND, **BACKEND}
messages: st.SearchStrategy[Message] = st.one_of(*ALL.values())


_REQUESTS = (
    *(AuthenticationCleartextPassword, AuthenticationSASL),
    *(AuthenticationSASLContinue, AuthenticationSASLFinal),
)  # they have the type byte of AuthenticationOk


def read_backend(data: bytes) -> list[BackendMessage]:
    """All messages in a server's `data`, which must end with a complete one."""
    classes = {cls.code[0]: cls for cls in get_args(BackendMessage) if cls not in _REQUESTS}
    at = 0
    result: list[BackendMessage] = []
    while at < len(data):
        code, length = HEADER.unpack_from(data, at)
        start, at = at + HEADER.size, at + 1 + length
        assert at <= len(data), "a message is cut off"
        result.append(classes[code].parse(data, start, at))
    return result
