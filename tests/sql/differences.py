"""The known differences from PostgreSQL: tests/sql/differences.toml. The suite checks that each of them still exists.

[[difference]]
chapter = "strings"          # a file of the suite
statement = "select 1"       # this statement, word for word; or
contains = "to_char("        # every statement of the file that contains this text
kind = "refused"
reason = "What a user should know."
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.sql.statements import DIRECTORY, Statement

KINDS = {
    "refused": "Tidewire refuses it (0A000, 42883 or 42601), PostgreSQL answers",
    "error": "one raises an error where the other does not, or another one",
    "value": "both answer, with different values",
    "type": "both answer, with different types or names of columns",
}


@dataclass(frozen=True, slots=True)
class Difference:
    chapter: str
    kind: str
    reason: str
    statement: str | None = None
    contains: str | None = None

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self
        assert (self.statement is None) != (self.contains is None), self

    def covers(self, statement: Statement) -> bool:
        if statement.chapter != self.chapter:
            return False
        return statement.sql == self.statement if self.contains is None else self.contains in statement.sql


@cache
def differences() -> tuple[Difference, ...]:
    text = (DIRECTORY / "differences.toml").read_text()
    return tuple(Difference(**entry) for entry in tomllib.loads(text).get("difference", ()))


def known(statement: Statement) -> Difference | None:
    return next((entry for entry in differences() if entry.covers(statement)), None)


def unused(statements: Iterable[Statement]) -> list[Difference]:
    """The differences that apply to none of these statements."""
    found = list(statements)
    return [entry for entry in differences() if not any(entry.covers(statement) for statement in found)]
