"""Runs a `.pt` file: blocks of protocol messages to send, and the exact messages that the server must return.

    send conn=one
    Query {"query": "SELECT 1"}
    ----

    until conn=one
    ReadyForQuery
    ----
    RowDescription {"fields":[{"name":"?column?"}]}
    DataRow {"fields":["1"]}
    CommandComplete {"tag":"SELECT 1"}
    ReadyForQuery {"status":"I"}

`send` writes its messages at once. `until` reads and prints messages, for each of its message types in order, up to and
including the next message of that type. The expected output ends at a blank line. Output that contains blank lines is
enclosed in two lines `----` above and two below. Lines that start with `#` between blocks are comments.

Arguments of both: `conn=NAME` (opened on first use), `cluster=NAME` (a startup parameter for that first use).
Arguments of `until`: `ignore=TYPE` (repeatable: neither printed nor matched), `no_error_fields`, `err_field_typs=SCM`
(which fields of errors and notices to print, in the order received).

Extensions of Materialize's format, for values that differ from run to run: `until mask_numbers=N` prints each sequence
of N or more digits in DataRow and CopyData as `<number>`. `until times` prints each number of 13 digits (milliseconds
since 1970) as `<t1>`, `<t2>`, ..., numbered by first occurrence in the file; equal numbers have the same name. `send`
also supports Close and Flush. `cancel`, a block without lines, sends a CancelRequest for the connection.

User and database are taken from the URL, with the default materialize. Unlike in Materialize, no `welcome_message` is
sent at startup, because PostgreSQL rejects the parameter.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from psycopg import ProgrammingError, conninfo

from testdrive.client import DEFAULT_DATABASE
from testdrive.report import CommandFailed, Failure, Mismatch, ParseError, Span, decoded, rewritten
from testdrive.script import Options
from testdrive.wire import Connection, Message, encode

_ARGUMENT = re.compile(r"(\w+)(?:=(?:\(([^)]*)\)|(\S+)))?(?:\s+|$)")
_ARGUMENTS = {
    "send": {"conn", "cluster"},
    "until": {"conn", "cluster", "ignore", "no_error_fields", "err_field_typs", "mask_numbers", "times"},
    "cancel": {"conn"},
}
_TIME = re.compile(r"(?<![0-9])[0-9]{13}(?![0-9])")
_FENCE = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """A block. `line` counts from 1. `arguments`: name -> values in the order given.

    `output` is the span from the end of the `----` line to the end of the expected output.
    """

    line: int
    directive: str
    arguments: dict[str, list[str]]
    input: tuple[str, ...]
    expected: tuple[str, ...]
    output: Span

    def last(self, name: str, default: str) -> str:
        return self.arguments.get(name, [default])[-1]


def run_pt(path: Path, options: Options) -> Failure | None:
    """Runs one file. Returns its failure, None if it passed.

    With `options.rewrite`, answers that differ are written into the file and are not failures.
    """
    source = path.read_bytes()
    answers: dict[Span, Sequence[str]] = {}
    failure = None
    try:
        blocks = parse(decoded(source))
        connections = _Connections(options)
    except ParseError as error:
        return Failure(path, error.line, "not well formed", str(error))
    except CommandFailed as error:
        return Failure(path, 1, "before the first block", str(error))
    try:
        for block in blocks:
            options.at_line(block.line)
            try:
                got = connections.run(block)
                if list(block.expected) != got:
                    raise Mismatch(block.expected, got)
            except CommandFailed as error:
                if not (options.rewrite and isinstance(error, Mismatch)):
                    failure = Failure(path, block.line, "\n".join([block.directive, *block.input]), str(error))
                    break
                answers[block.output] = _fenced(error.got)
    finally:
        connections.close()
    if answers:
        path.write_bytes(rewritten(source, answers))
    return failure


def parse(text: str) -> list[Block]:
    """Returns the blocks of a file. Raises ParseError."""
    lines = text.split("\n")
    ends = []  # the byte offset of each line's end, exclusive
    position = 0
    for line in lines:
        position += len(line.encode())
        ends.append(position)
        position += 1
    blocks = []
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        start = at
        if _FENCE not in lines[at:]:
            raise ParseError(start + 1, "a block needs a line ---- between input and output")
        fence = lines.index(_FENCE, at)
        if lines[fence + 1 : fence + 2] == [_FENCE]:
            at = fence + 2
            while lines[at : at + 2] != [_FENCE, _FENCE]:
                if at >= len(lines):
                    raise ParseError(start + 1, "the output's doubled ---- is not closed")
                at += 1
            expected, at = lines[fence + 2 : at], at + 2
        else:
            at = next((i for i in range(fence + 1, len(lines)) if not lines[i].strip()), len(lines))
            expected = lines[fence + 1 : at]
        directive, *words = lines[start].split(maxsplit=1)
        arguments = _arguments(start + 1, directive, "".join(words))
        if directive == "cancel" and fence > start + 1:
            raise ParseError(start + 1, "cancel takes no lines below it")
        output = Span(ends[fence], ends[at - 1])
        blocks.append(
            Block(start + 1, lines[start], arguments, tuple(lines[start + 1 : fence]), tuple(expected), output)
        )
    return blocks


def printed(message: Message, error_fields: str = "CSM", shown_value: Callable[[str], str] = str) -> str:
    """Formats a message as one line: its kind and its content as compact JSON. `shown_value` maps values of rows."""
    kind, content = message.kind, message.content
    shown: object
    match kind:
        case "ReadyForQuery":
            shown = {"status": content}
        case "CommandComplete":
            shown = {"tag": content}
        case "RowDescription":
            shown = {"fields": [{"name": name} for name in cast(list[str], content)]}
        case "DataRow":
            shown = {"fields": [_value(value, shown_value) for value in cast(list[bytes | None], content)]}
        case "CopyData":
            shown = _value(cast(bytes, content), shown_value)
        case "ErrorResponse" | "NoticeResponse":
            fields = cast(list[tuple[str, str]], content)
            shown = {"fields": [{"typ": typ, "value": value} for typ, value in fields if typ in error_fields]}
        case "CopyIn" | "CopyOut":
            names = ("text", "binary")
            overall, columns = cast(tuple[int, list[int]], content)
            shown = {"format": names[overall], "column_formats": [names[column] for column in columns]}
        case "ParameterDescription":
            shown = {"parameters": content}
        case "ParameterStatus":
            name, value = cast(tuple[str, str], content)
            shown = {"name": name, "value": value}
        case _:
            return kind
    return f"{kind} {json.dumps(shown, separators=(',', ':'), ensure_ascii=False)}"


class _Connections:
    """The connections of one file by name. The name of the unnamed connection is empty."""

    def __init__(self, options: Options) -> None:
        try:
            server = conninfo.conninfo_to_dict(options.url)
        except ProgrammingError as error:
            raise CommandFailed(f"cannot read the URL {options.url}: {error}") from error
        self._host = str(server.get("host") or "localhost")
        self._port = int(server.get("port") or 5432)
        self._parameters = {
            "user": str(server.get("user") or "materialize"),
            "database": str(server.get("dbname") or DEFAULT_DATABASE),
        }
        self._timeout_s = options.default_timeout_s
        self._open: dict[str, Connection] = {}
        self._times: dict[str, str] = {}

    def run(self, block: Block) -> list[str]:
        """Runs a block and returns the lines that it prints. Raises CommandFailed."""
        name = block.last("conn", "")
        try:
            if name not in self._open:
                parameters = dict(self._parameters)
                if cluster := block.last("cluster", ""):
                    parameters["cluster"] = cluster
                self._open[name] = Connection(self._host, self._port, parameters, self._timeout_s)
            connection = self._open[name]
            if block.directive.startswith("cancel"):
                connection.cancel(self._timeout_s)
                return []
            if block.directive.startswith("send"):
                connection.send(b"".join(map(_message, block.input)))
                return []
        except OSError as error:
            raise CommandFailed(str(error)) from error
        return self._until(connection, block)

    def _until(self, connection: Connection, block: Block) -> list[str]:
        deadline = time.monotonic() + self._timeout_s
        error_fields = "" if "no_error_fields" in block.arguments else block.last("err_field_typs", "CSM")
        shown = self._shown(block)
        unseen = set(block.arguments.get("ignore", ()))
        if "ParameterStatus" not in block.input:
            unseen.add("ParameterStatus")
        lines: list[str] = []
        for kind in block.input:
            message = None
            while message is None or message.kind != kind:
                try:
                    message = connection.receive(deadline)
                except OSError as error:
                    reason = f"no {kind} within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else error
                    received = "\n".join(lines) or "nothing"
                    raise CommandFailed(f"{reason}; received until then:\n{received}") from error
                if message.kind in unseen:
                    message = None
                else:
                    lines.append(printed(message, error_fields, shown))
        return lines

    def _shown(self, block: Block) -> Callable[[str], str]:
        """Returns the function with which the block's arguments mask a value."""
        if "times" in block.arguments:
            return lambda value: _TIME.sub(lambda found: self._named(found[0]), value)
        digits = block.last("mask_numbers", "")
        return (lambda value: re.sub(rf"[0-9]{{{int(digits)},}}", "<number>", value)) if digits else str

    def _named(self, time: str) -> str:
        return self._times.setdefault(time, f"<t{len(self._times) + 1}>")

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


def _arguments(line: int, directive: str, text: str) -> dict[str, list[str]]:
    if directive not in _ARGUMENTS:
        raise ParseError(line, f"a block starts with send, until or cancel, not with {directive}")
    arguments: dict[str, list[str]] = {}
    at = 0
    while at < len(text):
        if not (found := _ARGUMENT.match(text, at)):
            raise ParseError(line, f"arguments have the form word, key=value or key=(a,b), not {text[at:]!r}")
        name, several, one = found.groups()
        if name not in _ARGUMENTS[directive]:
            raise ParseError(line, f"{directive} has no argument {name}")
        if name == "mask_numbers" and not (one or "").isdigit():
            raise ParseError(line, "mask_numbers needs a number of digits")
        values = several.split(",") if several is not None else [one or ""]
        arguments.setdefault(name, []).extend(value.strip() for value in values)
        at = found.end()
    return arguments


def _message(line: str) -> bytes:
    kind, _, text = line.strip().partition(" ")
    try:
        content = json.loads(text) if text else {}
        return encode(kind, content if isinstance(content, dict) else {"data": content})
    except ValueError as error:
        raise CommandFailed(f"cannot send {line!r}: {error}") from error


def _value(value: bytes | None, shown: Callable[[str], str]) -> str:
    if value is None:
        return "NULL"
    try:
        return shown(value.decode())
    except UnicodeDecodeError:
        return str(list(value))


def _fenced(lines: Sequence[str]) -> list[str]:
    if any(not line.strip() for line in lines):
        return [_FENCE, *lines, _FENCE, _FENCE]
    return list(lines)
