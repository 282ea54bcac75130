"""What both kinds of script say when they fail, and how `--rewrite` puts the server's answer into the file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` (inclusive) to `end` (exclusive) of a UTF-8 file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Where (`line` counts from 1), which command, and what was wrong with it."""

    path: Path
    line: int
    command: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.command}\n{self.message}"


class ParseError(Exception):
    """The script itself is not well formed at `line`."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class CommandFailed(Exception):
    """A command did not do what the script says; the text tells why. `final`: no further try can mend it."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Mismatch(CommandFailed):
    """The server's answer is not the expected one; `got` is what the script would have to say, line by line."""

    def __init__(
        self, expected: Sequence[str], got: Sequence[str], reason: str = "the answer differs", *, final: bool = False
    ) -> None:
        diff = "\n".join(difflib.unified_diff(expected, got, "expected", "got", lineterm=""))
        super().__init__(f"{reason}:\n{diff}", final=final)
        self.got = tuple(got)


def decoded(source: bytes) -> str:
    """A script's text. Raises ParseError where it is not UTF-8."""
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        raise ParseError(source.count(b"\n", 0, error.start) + 1, str(error)) from error


def rewritten(source: bytes, answers: Mapping[Span, Sequence[str]]) -> bytes:
    """`source` with each span, which begins at the end of a line, replaced by these lines."""
    for span in sorted(answers, key=lambda span: span.start, reverse=True):
        lines = "".join(f"\n{line}" for line in answers[span])
        source = source[: span.start] + lines.encode() + source[span.end :]
    return source
