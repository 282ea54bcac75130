"""A server's answer to a statement, and the files with PostgreSQL's recorded answers: tests/sql/<chapter>.answers.

A file has one JSON object per line, in the order of the statements. It contains the columns with their type OIDs (and
the modifier of a numeric that has one) and the rows in text form, or else the SQLSTATE and the message of an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sql.statements import DIRECTORY, Statement

Cell = str | None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    oid: int
    modifier: int = -1  # of numeric only

    def __str__(self) -> str:
        return f"{self.name} ({self.oid})"


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, or an error if `sqlstate` is not None."""

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    sqlstate: str | None = None
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.sqlstate is not None:
            return f"{self.sqlstate}: {self.message}"
        return f"{', '.join(map(str, self.columns))}: {list(self.rows)}"


def write(chapter: str, answered: Sequence[tuple[Statement, Answer]]) -> None:
    lines = (json.dumps(_object(*pair), ensure_ascii=False) + "\n" for pair in answered)
    (DIRECTORY / f"{chapter}.answers").write_text("".join(lines))


def read(chapter: str) -> list[tuple[Statement, Answer]]:
    """The recorded answers. Empty if there is no file."""
    path = DIRECTORY / f"{chapter}.answers"
    # Not splitlines(): a value may contain characters that str treats as line boundaries.
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [_pair(chapter, json.loads(line)) for line in lines]


def _object(statement: Statement, answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {"sql": statement.sql}
    if statement.settings:
        result["settings"] = dict(statement.settings)
    if answer.sqlstate is not None:
        return result | {"error": [answer.sqlstate, answer.message]}
    columns = [[c.name, c.oid] if c.modifier < 0 else [c.name, c.oid, c.modifier] for c in answer.columns]
    return result | {"columns": columns, "rows": answer.rows}


def _pair(chapter: str, object: dict[str, Any]) -> tuple[Statement, Answer]:
    statement = Statement(chapter, object["sql"], tuple(object.get("settings", {}).items()))
    if "error" in object:
        return statement, Answer(sqlstate=object["error"][0], message=object["error"][1])
    return statement, Answer(tuple(Column(*c) for c in object["columns"]), tuple(map(tuple, object["rows"])))
