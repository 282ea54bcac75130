"""The suite's sessions: tests/sql/sessions/<chapter>.sql, whose statements change tables, in order, in a new database.

`<chapter>.answers` has PostgreSQL's answers: for each statement its rows or its error, as in answers.py, and its
command tag. `python -m tests.sql.record` writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from tests.sql.answers import Answer, Column
from tests.sql.oracle import answer_of
from tests.sql.statements import DIRECTORY, split

SESSIONS = DIRECTORY / "sessions"


@dataclass(frozen=True, slots=True)
class Step:
    """A statement and its answer. `tag` is empty for an error."""

    sql: str
    tag: str
    answer: Answer


def session_chapters() -> list[str]:
    """The names of the files."""
    return sorted(path.stem for path in SESSIONS.glob("*.sql"))


def session_statements(chapter: str) -> list[str]:
    return [sql for sql, _ in split((SESSIONS / f"{chapter}.sql").read_text())]


def play(connection: psycopg.Connection[Any], chapter: str) -> list[Step]:
    """Executes the statements of a chapter."""
    return [_step(connection, sql) for sql in session_statements(chapter)]


def _step(connection: psycopg.Connection[Any], sql: str) -> Step:
    result = connection.pgconn.exec_params(sql.encode(), [])
    tag = "" if result.status == ExecStatus.FATAL_ERROR else (result.command_status or b"").decode()
    return Step(sql, tag, answer_of(result))


def write(chapter: str, steps: list[Step]) -> None:
    lines = (json.dumps(_object(step), ensure_ascii=False) + "\n" for step in steps)
    (SESSIONS / f"{chapter}.answers").write_text("".join(lines))


def read(chapter: str) -> list[Step]:
    """The recorded steps. Empty if there is no file."""
    path = SESSIONS / f"{chapter}.answers"
    return [_restored(json.loads(line)) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def _object(step: Step) -> dict[str, Any]:
    answer = step.answer
    if answer.sqlstate is not None:
        return {"sql": step.sql, "error": [answer.sqlstate, answer.message]}
    columns = [[c.name, c.oid] if c.modifier < 0 else [c.name, c.oid, c.modifier] for c in answer.columns]
    return {"sql": step.sql, "tag": step.tag, "columns": columns, "rows": answer.rows}


def _restored(object: dict[str, Any]) -> Step:
    if "error" in object:
        return Step(object["sql"], "", Answer(sqlstate=object["error"][0], message=object["error"][1]))
    answer = Answer(tuple(Column(*c) for c in object["columns"]), tuple(map(tuple, object["rows"])))
    return Step(object["sql"], object["tag"], answer)
