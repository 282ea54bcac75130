"""Failures of scripts, and the replacement of expected output in a file for `--rewrite`."""

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
    """A failed command: its file, its line (from 1), its text and the error message."""

    path: Path
    line: int
    command: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.command}\n{self.message}"


class ParseError(Exception):
    """The script is malformed at `line`."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class CommandFailed(Exception):
    """A command failed; the text gives the reason. `final`: retrying is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Mismatch(CommandFailed):
    """The server's answer differs from the expected one. `got` contains the lines that the script would need."""

    def __init__(
        self, expected: Sequence[str], got: Sequence[str], reason: str = "the answer differs", *, final: bool = False
    ) -> None:
        diff = "\n".join(difflib.unified_diff(expected, got, "expected", "got", lineterm=""))
        super().__init__(f"{reason}:\n{diff}", final=final)
        self.got = tuple(got)


def decoded(source: bytes) -> str:
    """Decodes a script. Raises ParseError, with the line, if it is not UTF-8."""
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        raise ParseError(source.count(b"\n", 0, error.start) + 1, str(error)) from error


def rewritten(source: bytes, answers: Mapping[Span, Sequence[str]]) -> bytes:
    """Returns `source` with each span replaced by its lines. A span starts at the end of a line."""
    for span in sorted(answers, key=lambda span: span.start, reverse=True):
        lines = "".join(f"\n{line}" for line in answers[span])
        source = source[: span.start] + lines.encode() + source[span.end :]
    return source
