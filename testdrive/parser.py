"""Parses `.td` text to commands. Does no IO.

A command starts with a sigil in column 1: `$` action, `>` query and its rows, `?` query and its one text value,
`!` query and its error. Lines that start with two spaces continue the head (SQL keeps the line break; `$` heads and
rows are joined with a space). The lines up to the next sigil are the body. `#` in column 1 starts a comment anywhere.
Blank lines are ignored, except in the body of `?`.

A body line that would be read as something else because of its first character is escaped with `\\`. The backslash is
removed unless a letter or a digit follows it (`\\xc3` is a printed byte and is kept).

Variables are not replaced here, but when a command runs, after rows have been split into values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from testdrive.report import ParseError, Span

SIGILS = "$>?!"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\"}
_GUARD = re.compile(r"\[(?:(\d+)(<=?))?version(?:(<=|>=|<|>|=)(\d+))?\]")
_HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")
_MATCH = re.compile(r"(contains|exact|regex): *(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Guard:
    """A version guard `[low<=version<high]`. Bounds are (operator, number XXYYYZZ), with the version on the left."""

    bounds: tuple[tuple[str, int], ...]

    def admits(self, version: int) -> bool:
        orders = {
            "<": int.__lt__,
            "<=": int.__le__,
            ">": int.__gt__,
            ">=": int.__ge__,
            "=": int.__eq__,
        }
        return all(orders[operator](version, number) for operator, number in self.bounds)


@dataclass(frozen=True, slots=True)
class Location:
    """The position of a command: its line (from 1), its head as written, the span of its body, and its version guard.

    `body` starts at the end of the head's last line, before the line break, and ends at the end of the last line
    that is neither blank nor a comment.
    """

    line: int
    head: str
    body: Span
    guard: Guard | None


@dataclass(frozen=True, slots=True)
class Action:
    location: Location
    name: str
    arguments: dict[str, str]
    body: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Expected rows, unquoted, in the order of the script. `columns` is None if the script does not name them."""

    columns: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Hashed:
    """`N values hashing to MD5`."""

    count: int
    md5: str


@dataclass(frozen=True, slots=True)
class Query:
    location: Location
    sql: str
    expected: Rows | Hashed


@dataclass(frozen=True, slots=True)
class TextQuery:
    """`?`: expects one row with one text value. `expected` contains its lines."""

    location: Location
    sql: str
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailingQuery:
    location: Location
    sql: str
    how: Literal["contains", "exact", "regex", "timeout"]
    text: str
    detail: str | None
    hint: str | None


Command = Action | Query | TextQuery | FailingQuery


@dataclass(frozen=True, slots=True)
class _SourceLine:
    number: int
    end: int
    text: str

    @property
    def ignorable(self) -> bool:
        return self.text.startswith("#") or not self.text.strip()

    @property
    def opens_command(self) -> bool:
        """Whether the line starts with a sigil. `${` is not a sigil: it starts a row that begins with a variable."""
        return self.text.startswith(tuple(SIGILS)) and not self.text.startswith("${")


def parse(text: str) -> list[Command]:
    """Returns the commands of a file. Raises ParseError with the line of the malformed command."""
    lines = _lines(text)
    starts = [i for i, line in enumerate(lines) if line.opens_command]
    ends = [*starts[1:], len(lines)] if starts else []
    for line in lines[: starts[0]] if starts else lines:
        if not line.ignorable:
            raise ParseError(line.number, f"a command starts with one of {SIGILS} in column 1, not with {line.text!r}")
    return [_command(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def words(text: str, *, nesting: bool = False) -> list[str]:
    """Splits at white space outside `"..."`. With `nesting`, text in braces or brackets is kept as written.

    Inside quotes \\n \\t \\r \\0 \\" \\\\ are escapes; a backslash before any other character is literal.
    Raises ValueError if a quote or bracket is not closed.
    """
    found: list[str] = []
    word: list[str] | None = None
    quoted, depth = False, 0
    characters = iter(text)
    for c in characters:
        if not quoted and not depth and c.isspace():
            if word is not None:
                found.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if c == '"':
            quoted = not quoted
            word.append(c if depth else "")
        elif quoted and c == "\\":
            escaped = next(characters, "")
            as_written = c + escaped
            word.append(as_written if depth else _ESCAPES.get(escaped, as_written))
        else:
            if nesting and not quoted:
                depth = max(0, depth + (c in "{[") - (c in "}]"))
            word.append(c)
    if quoted or depth:
        raise ValueError("a quote is not closed" if quoted else "a brace or bracket is not closed")
    if word is not None:
        found.append("".join(word))
    return found


def quoted(value: str) -> str:
    """Quotes a value if necessary, so that `words` returns it unchanged."""
    if value and not any(c.isspace() or c in '"\0' for c in value):
        return value
    names = {c: name for name, c in _ESCAPES.items()}
    return '"' + "".join(f"\\{names[c]}" if c in names else c for c in value) + '"'


def escaped(line: str) -> str:
    """Escapes a body line if necessary, so that parsing it returns the same line."""
    taken = line.startswith((*SIGILS, "#", "  ")) or (line.startswith("\\") and not line[1:2].isalnum())
    return f"\\{line}" if taken else line


def _lines(text: str) -> list[_SourceLine]:
    lines, start = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        length = len(line.encode())
        bare = line.removesuffix("\r")
        lines.append(_SourceLine(number, start + len(bare.encode()), bare))
        start += length + 1
    return lines


def _command(lines: Sequence[_SourceLine]) -> Command:
    sigil, head = lines[0].text[0], lines[0].text[1:]
    try:
        guard, head = _guard(head)
        last = 0
        parts = [head.strip()]
        for i, line in enumerate(lines[1:], 1):
            if line.ignorable:
                continue
            if not line.text.startswith("  "):
                break
            parts.append(line.text[2:])
            last = i
        body = lines[last + 1 :]
        end = next((line.end for line in reversed(body) if not line.ignorable), lines[last].end)
        written = "\n".join(line.text for line in lines[: last + 1])
        location = Location(lines[0].number, written, Span(lines[last].end, end), guard)
        sql = "\n".join(parts)
        if sigil != "$" and not sql:
            raise ValueError("no statement after the sigil")
        match sigil:
            case "$":
                return _action(location, " ".join(parts), body)
            case ">":
                return Query(location, sql, _expected(_folded(body)))
            case "?":
                text = [_unescaped(line.text) for line in body if not line.text.startswith("#")]
                return TextQuery(location, sql, tuple("\n".join(text).rstrip().split("\n")))
            case _:
                return _failing(location, sql, _folded(body))
    except ValueError as error:
        raise ParseError(lines[0].number, str(error)) from None


def _guard(head: str) -> tuple[Guard | None, str]:
    if not head.startswith("["):
        return None, head
    if not (found := _GUARD.match(head)):
        raise ValueError("a version guard has the form [version>=2601700] or [2601700<=version<2601800]")
    low, low_order, high_order, high = found.groups()
    bounds = []
    if low:
        bounds.append(({"<": ">", "<=": ">="}[low_order], int(low)))
    if high:
        bounds.append((high_order, int(high)))
    return Guard(tuple(bounds)), head[found.end() :]


def _action(location: Location, head: str, body: Iterable[_SourceLine]) -> Action:
    name, *rest = words(head, nesting=True) or [""]
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"{name!r} is not the name of an action")
    arguments: dict[str, str] = {}
    for word in rest:
        key, _, value = word.partition("=")
        if key in arguments:
            raise ValueError(f"argument {key} is given twice")
        arguments[key] = value
    return Action(location, name, arguments, tuple(_unescaped(line.text) for line in body if not line.ignorable))


def _unescaped(line: str) -> str:
    return line[1:] if line.startswith("\\") and not line[1:2].isalnum() else line


def _folded(body: Iterable[_SourceLine]) -> list[str]:
    lines: list[str] = []
    for line in body:
        if line.ignorable:
            continue
        if line.text.startswith("  "):
            lines[-1] += " " + line.text[2:]
        else:
            lines.append(_unescaped(line.text))
    return lines


def _expected(lines: list[str]) -> Rows | Hashed:
    if len(lines) == 1 and (found := _HASHED.fullmatch(lines[0])):
        return Hashed(int(found[1]), found[2])
    columns = None
    if len(lines) > 1 and re.fullmatch("-{3,}", lines[1].strip()):
        columns = tuple(words(lines[0]))
        lines = lines[2:]
    return Rows(columns, tuple(tuple(words(line)) for line in lines))


def _failing(location: Location, sql: str, lines: list[str]) -> FailingQuery:
    if not lines:
        raise ValueError("! needs a line contains:, exact:, regex: or timeout after the statement")
    more: dict[str, str] = {}
    for line in lines[1:]:
        field, _, text = line.partition(":")
        if field not in ("detail", "hint") or field in more:
            raise ValueError(f"expected one detail: and one hint:, not {line!r}")
        more[field] = text.strip()
    if lines[0].strip() == "timeout":
        return FailingQuery(location, sql, "timeout", "", more.get("detail"), more.get("hint"))
    if not (found := _MATCH.fullmatch(lines[0])):
        raise ValueError(f"expected contains:, exact:, regex: or timeout, not {lines[0]!r}")
    how: Literal["contains", "exact", "regex"]
    how = "contains" if found[1] == "contains" else "exact" if found[1] == "exact" else "regex"
    return FailingQuery(location, sql, how, found[2], more.get("detail"), more.get("hint"))
