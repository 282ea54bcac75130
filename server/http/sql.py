"""POST /api/sql: executes statements and answers with their results, as JSON or as an Arrow stream.

A body with `query` and without `parameters` is a Query message: a text of any number of statements. Otherwise each
statement is prepared, bound and executed, with one Sync at the end. In both cases the statements are one transaction
unless they begin or end one, and an error ends the request.

The status is 200 if the answer grows beyond BUFFER_BYTES, since it is sent from then on. A later error is at the end of
the JSON; an Arrow stream breaks off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from aiohttp import hdrs, web

from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import (
    CommandComplete,
    EmptyQueryResponse,
    ErrorResponse,
    NoticeResponse,
    RowDescription,
)
from protocol.pgwire.messages.copying import CopyData
from protocol.pgwire.messages.frontend import Bind, Describe, Execute, FrontendMessage, Parse, Query, Sync
from protocol.pgwire.types import BY_OID, TEXT
from protocol.pgwire.utf8 import check_text
from server.http.access import database_of
from server.http.api_session import Answer, ApiSession, serialized
from server.http.request_limits import RequestLimits
from server.http.responses import JSON, Refused, error_object, error_response, json_bytes, status_of
from server.http.row_formats import ARROW_ROWS, JSON_ROWS, arrow_schema, schema_and_batch
from server.session_state.row_format import RowFormat

ARROW = "application/vnd.apache.arrow.stream"
BUFFER_BYTES = 256 * 1024
STATEMENTS_MAX = 1_000  # of one request
SETTINGS_MAX = 1_000  # of one request
PARAMETERS_MAX = 65_535  # of one statement, as in PostgreSQL
SHOWN_MAX = 100  # characters of an unknown name in an error

OpenSession = Callable[[web.Request, Mapping[str, str], RowFormat], AbstractContextManager[ApiSession]]
"""Opens the session of a request, with these startup parameters. PgError."""

_CHUNKED = "chunked"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class _Statement:
    text: str
    parameters: tuple[bytes | None, ...]

    @classmethod
    def of(cls, value: object) -> Self:
        """PgError or ValueError if it is not valid."""
        if not isinstance(value, dict) or not isinstance(value.get("query"), str):
            raise ValueError('each of "statements" must be an object with a "query"')
        _check_keys(value, ("query", "parameters"))
        check_text(value["query"])
        return cls(value["query"], parameters_of(value.get("parameters", [])))

    def messages(self) -> list[FrontendMessage]:
        return [Parse("", self.text), Bind("", "", (), self.parameters, ()), Describe("P", ""), Execute("")]


@dataclass(frozen=True, slots=True)
class _Body:
    """`query`: a text that is sent as it is, else `statements`. `settings`: of the session."""

    query: str | None
    statements: tuple[_Statement, ...]
    settings: dict[str, str]

    @classmethod
    def parse(cls, data: bytes | bytearray) -> Self:
        """PgError or ValueError if it is not valid; RecursionError if it is nested too deeply."""
        value = loads(data.decode("utf-8-sig"))
        if not isinstance(value, dict):
            raise ValueError("the body must be a JSON object")
        _check_keys(value, ("query", "parameters", "statements", "settings"))
        settings = value.get("settings", {})
        if not isinstance(settings, dict) or not all(isinstance(text, str) for text in settings.values()):
            raise ValueError('"settings" must be an object of strings')
        if len(settings) > SETTINGS_MAX:
            raise ValueError(f'"settings" may have at most {SETTINGS_MAX} settings')
        if "database" in settings:
            raise ValueError("the database is a parameter of the query string, not a setting")
        for text in (*settings, *settings.values()):
            check_text(text)
        if ("query" in value) is ("statements" in value):
            raise ValueError('either "query" or "statements" is required')
        if "query" in value:
            if not isinstance(value["query"], str):
                raise ValueError('"query" must be a string')
            check_text(value["query"])
            if "parameters" not in value:
                return cls(value["query"], (), settings)
            return cls(None, (_Statement(value["query"], parameters_of(value["parameters"])),), settings)
        statements = value["statements"]
        if "parameters" in value or not isinstance(statements, list) or len(statements) > STATEMENTS_MAX:
            raise ValueError(f'"statements" must be an array of at most {STATEMENTS_MAX}, each with its "parameters"')
        return cls(None, tuple(map(_Statement.of, statements)), settings)

    def messages(self) -> list[FrontendMessage]:
        if self.query is not None:
            return [Query(self.query)]
        return [*(message for statement in self.statements for message in statement.messages()), Sync()]


class _Request(NamedTuple):
    """`settings`: of the session. `messages`: for the session, serialized."""

    settings: dict[str, str]
    messages: bytes

    @classmethod
    def parse(cls, data: bytes | bytearray) -> Self:
        """Raises as `_Body.parse`."""
        body = _Body.parse(data)
        return cls(body.settings, serialized(*body.messages()))


def _check_keys(value: Mapping[str, object], known: Sequence[str]) -> None:
    for name in value:
        if name not in known:
            raise ValueError(f'unknown property "{name[:SHOWN_MAX]}"')


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written: a float would lose digits, and Python limits those of integers."""

    text: str


def loads(text: str) -> Any:
    """As `json.loads`, with numbers for `parameters_of`."""
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def parameters_of(values: object) -> tuple[bytes | None, ...]:
    """The values of a JSON array in the text format of parameters. ValueError if it is no array, or has no UTF-8."""
    if not isinstance(values, list) or len(values) > PARAMETERS_MAX:
        raise ValueError(f'"parameters" must be an array of at most {PARAMETERS_MAX} values')
    return tuple(map(_parameter, values))


def _parameter(value: Any) -> bytes | None:
    """Strings are passed on, other values in their JSON form, with arrays of PostgreSQL as strings such as `{1,2}`."""
    if value is None:
        return None
    return (value if isinstance(value, str) else _json(value)).encode()


def _json(value: Any) -> str:
    match value:
        case _Number(text):
            return text
        case dict():
            return "{" + ", ".join(f"{_json(name)}: {_json(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def sql_handler(open_session: OpenSession, limits: RequestLimits) -> Callable[[web.Request], Any]:
    """Returns the handler of POST /api/sql."""

    async def handle(request: web.Request) -> web.StreamResponse:
        arrow = ARROW in request.headers.get(hdrs.ACCEPT, "")
        try:
            settings, messages = await _read(request, limits)
            parameters = {**settings, "database": database_of(request)}
            with open_session(request, parameters, ARROW_ROWS if arrow else JSON_ROWS) as session:
                session.send(messages)
                del messages  # the statements may run for hours
                output = _ArrowOutput(request) if arrow else _JsonOutput(request)
                async for answer in session.answers():
                    await output.receive(answer)
                return await output.finish()
        except PgError as error:
            raise Refused(status_of(error.sqlstate), error) from None

    return handle


async def _read(request: web.Request, limits: RequestLimits) -> _Request:
    """Refused or PgError if the body is not valid, too long, or takes too long."""
    if request.content_type != JSON:  # a page of another origin could send another type without a preflight request
        raise _invalid(415, f"the content type must be {JSON}")
    if hdrs.CONTENT_ENCODING in request.headers or request.headers.get(hdrs.TRANSFER_ENCODING, _CHUNKED) != _CHUNKED:
        raise _invalid(415, "encoded bodies are not supported")
    async with limits.body(request) as data:
        try:
            return await limits.parsed(_Request.parse, data)
        except (ValueError, RecursionError) as error:
            raise _invalid(400, f"invalid body: {str(error).splitlines()[0]}") from None


def _invalid(status: int, message: str) -> Refused:
    return Refused(status, PgError(SqlState.PROTOCOL_VIOLATION, message))


def described(answer: Answer) -> RowDescription:
    return RowDescription.parse(bytes(answer.body), 0, len(answer.body))


def columns_of(description: RowDescription) -> list[dict[str, Any]]:
    """The JSON form of columns."""
    return [
        {"name": field.name, "type": BY_OID.get(field.type_oid, TEXT).display, "oid": field.type_oid}
        for field in description.fields
    ]


def error_of(answer: Answer) -> PgError:
    """The error or notice in an ErrorResponse or NoticeResponse."""
    report = ErrorResponse.parse(bytes(answer.body), 0, len(answer.body))
    return PgError(
        SqlState(report.sqlstate),
        report.message,
        detail=report.detail,
        hint=report.hint,
        position=report.position,
        where=report.where,
        severity=Severity(report.severity),
        schema_name=report.schema_name,
        table_name=report.table_name,
        column_name=report.column_name,
        constraint_name=report.constraint_name,
        routine=report.routine,
    )


class _Output:
    """Buffers the answer until it is complete or longer than BUFFER_BYTES. Then it is sent as fast as it is read."""

    content_type: str

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._parts: list[bytes | memoryview] = []
        self._bytes = 0
        self._response: web.StreamResponse | None = None

    async def _write(self, *parts: bytes | memoryview) -> None:
        self._parts += parts
        self._bytes += sum(map(len, parts))
        if self._bytes > BUFFER_BYTES:
            await self._send()

    async def _send(self) -> None:
        if self._response is None:
            self._response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: self.content_type})
            self._response.force_close()
            await self._response.prepare(self._request)
        for part in self._parts:
            await self._response.write(part)
        self._discard()

    def _discard(self) -> None:
        self._parts = []
        self._bytes = 0

    async def _end(self, status: int = 200) -> web.StreamResponse:
        if self._response is None:
            body = b"".join(self._parts)
            return web.Response(status=status, body=body, headers={hdrs.CONTENT_TYPE: self.content_type})
        await self._send()
        await self._response.write_eof()
        return self._response


class _JsonOutput(_Output):
    """{"results": [{"columns": [...], "rows": [...], "tag": "SELECT 1", "notices": [...]}, ...], "error": {...}}"""

    content_type = JSON

    def __init__(self, request: web.Request) -> None:
        super().__init__(request)
        self._parts = [b'{"results":[']
        self._complete = 1  # the number of parts up to the end of the last complete result
        self._results = 0
        self._rows = 0  # the number of parts with rows of the current result
        self._is_open = False  # the current result has columns
        self._notices: list[dict[str, Any]] = []
        self._error: PgError | None = None

    async def receive(self, answer: Answer) -> None:
        match answer.code:
            case RowDescription.code:
                columns = json_bytes(columns_of(described(answer)))
                await self._write(self._comma(), b'{"columns":', columns, b',"rows":[')
                self._is_open, self._rows = True, 0
            case CopyData.code:
                await self._write(b",\n" if self._rows else b"", answer.body)
                self._rows += 1
            case CommandComplete.code:
                await self._complete_result(bytes(answer.body[:-1]).decode())
            case EmptyQueryResponse.code:
                await self._complete_result("")
            case NoticeResponse.code:
                self._notices.append(error_object(error_of(answer)))
            case ErrorResponse.code:
                self._error = error_of(answer)

    def _comma(self) -> bytes:
        self._results += 1
        return b",\n" if self._results > 1 else b""

    async def _complete_result(self, tag: str) -> None:
        end = {"tag": tag, **({"notices": self._notices} if self._notices else {})}
        self._notices = []
        if self._is_open:
            await self._write(b"],", json_bytes(end)[1:])
            self._is_open = False
        else:
            await self._write(self._comma(), json_bytes(end))
        self._complete = len(self._parts)

    async def finish(self) -> web.StreamResponse:
        if self._error is None:
            await self._write(b"]}\n")
            return await self._end()
        if self._response is None:
            del self._parts[self._complete :]  # a part of a result
        elif self._is_open:
            await self._write(b"]}")
        await self._write(b'],"error":', json_bytes(error_object(self._error)), b"}\n")
        return await self._end(status_of(self._error.sqlstate))


class _ArrowOutput(_Output):
    """The result of the only statement that returns rows, in Arrow's streaming format."""

    content_type = ARROW

    def __init__(self, request: web.Request) -> None:
        super().__init__(request)
        self._description: RowDescription | None = None
        self._has_schema = False
        self._error: PgError | None = None

    async def receive(self, answer: Answer) -> None:
        match answer.code:
            case RowDescription.code if self._description is None:
                self._description = described(answer)
            case RowDescription.code:
                self._error = PgError(
                    SqlState.FEATURE_NOT_SUPPORTED,
                    "an Arrow stream has the rows of one statement",
                    hint="Send each statement that returns rows in a request of its own.",
                )
            case CopyData.code if self._error is None:
                schema, batch = schema_and_batch(answer.body)
                await self._write(batch if self._has_schema else b"".join((schema, batch)))
                self._has_schema = True
            case ErrorResponse.code:
                self._error = error_of(answer)

    async def finish(self) -> web.StreamResponse:
        if self._error is None and self._description is None:
            self._error = PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "the statement returns no rows",
                hint="Ask for JSON, which reports the command tag.",
            )
        if self._error is not None:
            if self._response is None:
                return error_response(self._error, status_of(self._error.sqlstate))
            raise ConnectionResetError  # ends the response before its end
        if not self._has_schema and self._description is not None:
            types = [BY_OID.get(field.type_oid, TEXT) for field in self._description.fields]
            schema = arrow_schema([field.name for field in self._description.fields], types)
            await self._write(memoryview(schema.serialize()))
        await self._write(_END_OF_STREAM)
        return await self._end()
