"""The suite's sessions (sessions.py) on PostgreSQL and on Tidewire. A failure lists every step that differs."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
import pytest

from tests.sql.compare import difference
from tests.sql.record import recorded_session
from tests.sql.sessions import Step, play, read, session_chapters, session_statements


@pytest.mark.parametrize("chapter", session_chapters())
def test_recorded_sessions_are_those_of_postgresql(chapter: str, postgres: str) -> None:
    steps = read(chapter)
    assert [step.sql for step in steps] == session_statements(chapter), f"run python -m tests.sql.record {chapter}"
    assert steps == recorded_session(postgres, chapter)


@pytest.mark.sql
@pytest.mark.parametrize("chapter", session_chapters())
def test_sessions_equal_postgresql(chapter: str, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        faults = list(_faults(read(chapter), play(connection, chapter)))
    assert not faults, "\n".join(faults)


def _faults(expected: Iterable[Step], found: Iterable[Step]) -> Iterable[str]:
    for ours, theirs in zip(found, expected, strict=True):
        fault = difference(ours.sql, theirs.answer, ours.answer)
        if fault is None and ours.tag != theirs.tag:
            fault = f"PostgreSQL  {theirs.tag}\n    Tidewire    {ours.tag}"
        if fault is None and ours.answer.message != theirs.answer.message:
            fault = f"PostgreSQL  {theirs.answer.message}\n    Tidewire    {ours.answer.message}"
        if fault is not None:
            yield f"{ours.sql}\n    {fault}"
