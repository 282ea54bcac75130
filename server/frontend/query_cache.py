"""Caches by query string, shared by all sessions: syntax trees, plans, and constant answers.

Plans of writes are kept if they have parameters: the text of a write without parameters is seldom repeated.

All keys contain the session's `plan_key`, so an entry is not found after a change of the catalog or of the session's
name resolution. Long texts are not kept. A tree with its plan takes up to 400 bytes for each character of the text, so
the caches are limited by the lengths of their texts, and of those of the views in their plans (`weight`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import PgType
from server.pg_catalog.engine import Undescribed
from server.runtime.offload import TEXT_CHARS_MAX, at_once
from server.session_state.context import Context
from server.session_state.prepared import TEXT_CHARS_MIN, Prepared, plan_key, weight
from server.sql.constant import are_short
from server.sql.grammar.checkpoint import Stopped
from server.sql.grammar.parse import parse
from server.sql.grammar.shared_text import SharedText, shared_text
from server.sql.grammar.statements import Delete, Insert, Select, Statement, Subscribe, Update
from server.sql.plan import QueryPlan
from server.sql.writes.plan import WritePlan

CHARS_MAX = 256 * 1024

Value = TypeVar("Value")


class Cache(dict[object, Value]):
    """Values by key. It is emptied when the texts of its entries would have more than CHARS_MAX characters together."""

    _chars = 0

    def put(self, key: object, value: Value, chars: int) -> None:
        """`chars`: of the text, and of the value if it is not proportional to the text."""
        chars += TEXT_CHARS_MIN
        if self._chars + chars > CHARS_MAX:
            self.clear()
        if chars <= CHARS_MAX:
            self[key] = value
            self._chars += chars

    def clear(self) -> None:
        super().clear()
        self._chars = 0


def _is_shared(prepared: Prepared, shared: SharedText) -> bool:
    """Whether a plan is that of a write, or of a SELECT by key, with the declared parameter types."""
    plan, statement = prepared.plan, prepared.statement
    is_by_key = isinstance(plan, QueryPlan) and bool(plan.key_filters) and plan.row_locks is None
    if not isinstance(plan, WritePlan) and not (is_by_key and isinstance(statement, Select) and not statement.as_of):
        return False
    return all(type in (None, own) for type, own in zip(shared.types, prepared.parameters, strict=True))


class QueryCache:
    """Statements by text, plans by text and declared parameter types, and answers by text and output style."""

    def __init__(self) -> None:
        self._parsed: Cache[tuple[Statement, ...]] = Cache()
        self._plans: Cache[Prepared] = Cache()
        self._answers: Cache[bytes] = Cache()
        self._unshared: Cache[bool] = Cache()
        self._version = 0  # the latest version of the catalog with entries

    @staticmethod
    def keeps(context: Context, text: str) -> bool:
        """Whether entries for this text may be kept. Uncommitted DDL is visible to its session only."""
        return len(text) <= TEXT_CHARS_MAX and context.transaction.catalog is None

    def parsed(self, text: str) -> tuple[Statement, ...]:
        """The statements of a query string. PgError if its syntax is invalid. Other threads may ask for long texts."""
        if len(text) > TEXT_CHARS_MAX:
            return tuple(parse(text))
        statements = self._parsed.get(text)
        if statements is None:
            statements = tuple(parse(text))
            self._parsed.put(text, statements, len(text))
        return statements

    def plan(self, context: Context, text: str, parameter_oids: tuple[int, ...] = ()) -> Prepared | None:
        if context.transaction.catalog is not None:
            return None
        return self._plans.get((text, parameter_oids, *plan_key(context)))

    def put_plan(self, context: Context, text: str, prepared: Prepared, parameter_oids: tuple[int, ...] = ()) -> None:
        """Keeps the plan of a text that is one SELECT, SUBSCRIBE or write with parameters. Ignores other statements."""
        is_write = isinstance(prepared.statement, Insert | Update | Delete) and bool(prepared.parameters)
        if (is_write or isinstance(prepared.statement, Select | Subscribe)) and self.keeps(context, text):
            self._forget_before(context.state.version)
            # The catalog may have changed since the statement was planned, if a thread did it.
            self._plans.put((text, parameter_oids, *prepared.key), prepared, weight(prepared))

    def _forget_before(self, version: int) -> None:
        """Removes the entries for earlier versions of the catalog, which will not be found again."""
        if version > self._version:
            self._version = version
            for cache in (self._plans, self._answers, self._unshared):
                cache.clear()

    def shared_plan(
        self, context: Context, text: str, prepare: Callable[[Statement, Sequence[PgType | None]], Prepared]
    ) -> tuple[Prepared, tuple[object, ...]] | None:
        """The plan of a Query message's shared text, and the values of its parameters. `prepare` plans a statement.

        None if there is none, or if the message has an error, which executing the text reports with its position.
        """
        shared = shared_text(text) if self.keeps(context, text) else None
        if shared is None:
            return None
        oids = tuple([0 if type is None else type.oid for type in shared.types])
        key = (shared.text, oids, *plan_key(context))
        prepared = self._plans.get(key)
        try:
            if prepared is None and key not in self._unshared:
                (statement,) = self.parsed(shared.text)
                prepared = at_once(text, prepare, statement, shared.types)
                self.put_plan(context, shared.text, prepared, oids)
            if prepared is not None and _is_shared(prepared, shared):
                if isinstance(prepared.plan, WritePlan) and context.transaction.read_only:
                    return None  # an error of a constant precedes that of the transaction
                values = shared.values(prepared.read_types, context.settings.naming[2], context.settings.input_style)
                is_exact = prepared.wider_types(values) is None
                return (prepared, values) if is_exact and are_short(values) else None
        except (PgError, Undescribed, Stopped):
            pass
        self._unshared.put(key, True, len(text))
        return None

    def answer(self, context: Context, text: str) -> bytes | None:
        """Returns the encoded answer to a Query message, up to ReadyForQuery."""
        return self._answers.get((text, context.settings.output_style, *plan_key(context)))

    def put_answer(self, context: Context, text: str, prepared: Prepared, answer: bytes) -> None:
        """Keeps an answer whose text is kept (`keeps`)."""
        self._forget_before(context.state.version)
        self._answers.put((text, context.settings.output_style, *prepared.key), answer, len(text) + len(answer))
