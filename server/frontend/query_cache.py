"""Caches by query string, shared by all sessions: syntax trees, plans, and constant answers.

Plans of writes are kept if they have parameters: the text of a write without parameters is seldom repeated.

All keys contain the session's `plan_key`, so an entry is not found after a change of the catalog or of the session's
name resolution. Long texts are not kept.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from server.runtime.offload import TEXT_CHARS_MAX
from server.session_state.context import Context
from server.session_state.prepared import Prepared, plan_key
from server.sql.grammar.parse import parse
from server.sql.grammar.statements import Delete, Insert, Select, Statement, Update

ENTRIES_MAX = 4_096

_parse = functools.lru_cache(ENTRIES_MAX)(parse)

Value = TypeVar("Value")


def parsed(text: str) -> tuple[Statement, ...]:
    """Returns the statements of a query string. PgError if its syntax is invalid."""
    return tuple(_parse(text) if len(text) <= TEXT_CHARS_MAX else parse(text))


class Cache(dict[object, Value]):
    """Values by key. It is emptied when it is full."""

    def put(self, key: object, value: Value) -> None:
        if len(self) >= ENTRIES_MAX:
            self.clear()
        self[key] = value


class QueryCache:
    """Plans of queries and writes by text and declared parameter types, and answers by text and output style."""

    def __init__(self) -> None:
        self._plans: Cache[Prepared] = Cache()
        self._answers: Cache[bytes] = Cache()

    @staticmethod
    def keeps(context: Context, text: str) -> bool:
        """Whether what belongs to this text may be kept. Uncommitted DDL is visible to its session only."""
        return len(text) <= TEXT_CHARS_MAX and context.transaction.catalog is None

    def plan(self, context: Context, text: str, parameter_oids: tuple[int, ...] = ()) -> Prepared | None:
        if context.transaction.catalog is not None:
            return None
        return self._plans.get((text, parameter_oids, *plan_key(context)))

    def put_plan(self, context: Context, text: str, prepared: Prepared, parameter_oids: tuple[int, ...] = ()) -> None:
        """Keeps the plan of a text that is a single SELECT or a write with parameters. Ignores other statements."""
        is_write = isinstance(prepared.statement, Insert | Update | Delete) and bool(prepared.parameters)
        if (is_write or isinstance(prepared.statement, Select)) and self.keeps(context, text):
            self._plans.put((text, parameter_oids, *plan_key(context)), prepared)

    def answer(self, context: Context, text: str) -> bytes | None:
        """Returns the encoded answer to a Query message, up to ReadyForQuery."""
        return self._answers.get((text, context.settings.output_style, *plan_key(context)))

    def put_answer(self, context: Context, text: str, answer: bytes) -> None:
        """Keeps an answer whose text is kept (`keeps`)."""
        self._answers.put((text, context.settings.output_style, *plan_key(context)), answer)
