"""Hypothesis strategies for every protocol message, and a parser for the messages that a server sends."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from protocol.pgwire import messages as m

Message = m.FrontendMessage | m.BackendMessage

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
formats = st.integers(0, 1)
oids = st.integers(0, 2**32 - 1)
values = st.lists(st.none() | st.binary(max_size=20), max_size=5).map(tuple)
kinds = st.sampled_from(["S", "P"])


def tuples(elements: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(elements, max_size=5).map(tuple)


@st.composite
def binds(draw: st.DrawFn) -> m.Bind:
    parameters = draw(values)
    count = draw(st.sampled_from([0, 1, len(parameters)]))
    parameter_formats = tuple(draw(formats) for _ in range(count))
    return m.Bind(draw(texts), draw(texts), parameter_formats, parameters, draw(tuples(formats)))


fields = st.builds(
    m.FieldDescription,
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
    st.none() | texts,
)
versions = st.tuples(st.just(3), st.integers(0, 2**16 - 1))

OPENING: dict[type[Message], st.SearchStrategy[Message]] = {
    m.StartupMessage: st.builds(m.StartupMessage, st.dictionaries(names, texts, max_size=5), versions),
    m.SSLRequest: st.builds(m.SSLRequest),
    m.GSSENCRequest: st.builds(m.GSSENCRequest),
    m.CancelRequest: st.builds(m.CancelRequest, oids, oids),
}
FRONTEND: dict[type[Message], st.SearchStrategy[Message]] = {
    m.PasswordMessage: st.builds(m.PasswordMessage, texts),
    m.Query: st.builds(m.Query, texts),
    m.Parse: st.builds(m.Parse, texts, texts, tuples(oids)),
    m.Bind: binds(),
    m.Describe: st.builds(m.Describe, kinds, texts),
    m.Execute: st.builds(m.Execute, texts, st.integers(-(2**31), 2**31 - 1)),
    m.Close: st.builds(m.Close, kinds, texts),
    m.Sync: st.builds(m.Sync),
    m.Flush: st.builds(m.Flush),
    m.Terminate: st.builds(m.Terminate),
    m.CopyData: st.builds(m.CopyData, st.binary(max_size=40)),
    m.CopyDone: st.builds(m.CopyDone),
    m.CopyFail: st.builds(m.CopyFail, texts),
    m.FunctionCall: st.builds(m.FunctionCall, st.binary(max_size=40)),
}
BACKEND: dict[type[Message], st.SearchStrategy[Message]] = {
    m.AuthenticationOk: st.builds(m.AuthenticationOk),
    m.AuthenticationCleartextPassword: st.builds(m.AuthenticationCleartextPassword),
    m.NegotiateProtocolVersion: st.builds(m.NegotiateProtocolVersion, st.lists(texts, max_size=3).map(tuple), versions),
    m.ParameterStatus: st.builds(m.ParameterStatus, texts, texts),
    m.BackendKeyData: st.builds(m.BackendKeyData, oids, oids),
    m.ReadyForQuery: st.builds(m.ReadyForQuery, st.sampled_from(["I", "T", "E"])),
    m.RowDescription: st.builds(m.RowDescription, st.lists(fields, max_size=4).map(tuple)),
    m.ParameterDescription: st.builds(m.ParameterDescription, tuples(oids)),
    m.DataRow: st.builds(m.DataRow, values),
    m.NoData: st.builds(m.NoData),
    m.ParseComplete: st.builds(m.ParseComplete),
    m.BindComplete: st.builds(m.BindComplete),
    m.CloseComplete: st.builds(m.CloseComplete),
    m.PortalSuspended: st.builds(m.PortalSuspended),
    m.EmptyQueryResponse: st.builds(m.EmptyQueryResponse),
    m.CommandComplete: st.builds(m.CommandComplete, texts),
    m.CopyInResponse: st.builds(m.CopyInResponse, formats, tuples(formats)),
    m.CopyOutResponse: st.builds(m.CopyOutResponse, formats, tuples(formats)),
    m.CopyData: st.builds(m.CopyData, st.binary(max_size=40)),
    m.CopyDone: st.builds(m.CopyDone),
    m.ErrorResponse: st.builds(m.ErrorResponse, *reports),
    m.NoticeResponse: st.builds(m.NoticeResponse, *reports),
}
ALL: dict[type[Message], st.SearchStrategy[Message]] = {**OPENING, **FRONTEND, **BACKEND}
messages: st.SearchStrategy[Message] = st.one_of(*ALL.values())


def read_backend(data: bytes) -> list[m.BackendMessage]:
    """All messages in a server's `data`, which must end with a complete one."""
    classes = {cls.code[0]: cls for cls in get_args(m.BackendMessage) if cls is not m.AuthenticationCleartextPassword}
    at = 0
    result: list[m.BackendMessage] = []
    while at < len(data):
        code, length = m.HEADER.unpack_from(data, at)
        start, at = at + m.HEADER.size, at + 1 + length
        assert at <= len(data), "a message is cut off"
        result.append(classes[code].parse(data, start, at))
    return result
