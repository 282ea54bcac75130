"""Prepared statements: a statement, its plan, the types of its parameters and result. A session has them by name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from catalog.objects.namespaces import Schema
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import NoData, RowDescription
from protocol.pgwire.scalars import sent_dimensions
from protocol.pgwire.types import ANY_NUMERIC, NUMERIC, PgType, exact_numeric_type, with_dimensions
from server.dataflow.stream.envelope import Envelope
from server.runtime.offload import release_later
from server.session_state.context import Context
from server.session_state.results import row_description
from server.sql.grammar.statements import Insert, Select, Statement
from server.sql.grammar.statements.parts import Query
from server.sql.grammar.trees import release
from server.sql.plan import Field, QueryPlan
from server.sql.writes.plan import WritePlan


@dataclass(frozen=True, slots=True, eq=False)
class CatalogPlan:
    """A query over system catalogs. `parameters` are the types of the parameter values.

    `signals`: columns, by number, whose values are process ids in the engine's result and to which a function such as
    pg_terminate_backend is then applied.
    """

    tree: exp.Expr
    parameters: tuple[PgType, ...]
    columns: tuple[Field, ...]
    signals: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ValuesPlan:
    """A query or write whose last parameters are `values`, the columns of the only row of a query over catalogs."""

    inner: QueryPlan | WritePlan
    values: CatalogPlan

    @property
    def parameters(self) -> tuple[PgType, ...]:
        """The types of the parameters of the client."""
        planned = self.inner.query if isinstance(self.inner, WritePlan) else self.inner
        return planned.parameters[: -len(self.values.columns)]

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of the result; None for a write without RETURNING."""
        return self.inner.fields if isinstance(self.inner, WritePlan) else self.inner.columns


@dataclass(frozen=True, slots=True)
class SubscribePlan:
    query: QueryPlan
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class WritingPart:
    """A planned write in a WITH, or a query that is computed once. `rows`: the relation of its rows, if it has any."""

    plan: QueryPlan | WritePlan
    verb: str
    rows: Table | None


@dataclass(frozen=True, slots=True)
class WithWritesPlan:
    """A planned statement whose WITH writes. `schema` has the relations of the parts' rows, which only it sees.

    `verb`: of the main statement, if it writes.
    """

    parts: tuple[WritingPart, ...]
    main: QueryPlan | WritePlan
    verb: str
    schema: Schema
    parameters: tuple[PgType, ...]

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of the result; None if the main statement has no RETURNING."""
        return self.main.fields if isinstance(self.main, WritePlan) else self.main.columns


Plan: TypeAlias = QueryPlan | CatalogPlan | ValuesPlan | WritePlan | SubscribePlan | WithWritesPlan


@dataclass(slots=True)
class Prepared:
    """A planned statement. `statement` None: the empty query. `fields` None: the statement returns no rows."""

    statement: Statement | None
    key: tuple[object, ...]
    """The `plan_key` of the time of planning; empty if the statement is not planned."""
    parameters: tuple[PgType, ...] = ()
    fields: tuple[Field, ...] | None = None
    plan: Plan | None = None
    declared: tuple[PgType | None, ...] = ()
    """The parameter types that the client declared."""
    _read_types: tuple[PgType, ...] | None = None

    @property
    def text(self) -> str:
        """The text of the statement; empty for the empty query."""
        return "" if self.statement is None else self.statement.text

    @property
    def read_types(self) -> tuple[PgType, ...]:
        """As which the parameters are read: numerics with all digits if the plan can be made for `wider_types`."""
        if self._read_types is None:
            has_numeric = isinstance(self.plan, QueryPlan | WritePlan) and NUMERIC in self.parameters
            wide = (ANY_NUMERIC if type == NUMERIC else type for type in self.parameters)
            self._read_types = tuple(wide) if has_numeric else self.parameters
        return self._read_types

    def wider_types(self, values: Sequence[object]) -> tuple[PgType, ...] | None:
        """The parameter types that keep all digits of the values; None if those of the plan do."""
        if self.read_types is self.parameters:
            return None
        wider = tuple(
            exact_numeric_type(value) if type == NUMERIC and isinstance(value, Decimal) else type
            for type, value in zip(self.parameters, values, strict=True)
        )
        return None if wider == self.parameters else wider

    def types_of_arrays(self, formats: Sequence[int], values: Sequence[bytes | None]) -> tuple[PgType, ...] | None:
        """The parameter types with the number of dimensions that the values have; None if those of the plan have it.

        `values`: as the client sent them, in these formats. Queries over catalogs have arrays of one dimension only.
        """
        if all(type.element is None for type in self.parameters):
            return None
        if self.plan is None or isinstance(self.plan, CatalogPlan | ValuesPlan):
            return None
        types = tuple(
            with_dimensions(type, sent_dimensions(format, value) or type.dimensions)
            if type.element is not None and value is not None
            else type
            for type, format, value in zip(self.parameters, formats, values, strict=True)
        )
        return None if types == self.parameters else types

    def description(self, formats: Sequence[int]) -> RowDescription | NoData:
        """Returns the answer to Describe, for these result formats."""
        return NoData() if self.fields is None else row_description(self.fields, formats)

    def release_tree(self) -> None:
        """Frees the syntax tree of a long query or write that will not run again."""
        match self.statement:
            case Select(text=text, query=query) | Insert(text=text, source=Query() as query):
                release_later(text, release, query.tree)
            case _:
                pass


def plan_key(context: Context) -> tuple[object, ...]:
    """A statement's plan is valid as long as this key is equal to that of the time of planning.

    All uncommitted catalogs of a transaction have the version that the next commit of others can have, too.
    """
    own = context.process_id if context.has_temporary else 0
    role = context.settings.authorized or context.authenticated
    transaction = context.transaction
    uncommitted = 0 if transaction.catalog is None else transaction.number_of_catalog()
    return context.state.version, uncommitted, context.settings.naming, role, own


TEXT_CHARS_MIN = 64
"""The least number of characters for which the text of a statement or of a cache's entry counts."""
PREPARED_CHARS_MAX = 1 << 20
"""The limit of characters in the names and texts of a session's named statements, because the plan of a statement takes
up to 400 bytes for each character. A statement that names views can have a plan with more columns and expressions than
its text has characters. It then counts for these."""


class _Note(NamedTuple):
    """When a named statement was prepared, in microseconds since 1970, and by which PREPARE; None: by a message."""

    prepared_us: int
    text: str | None
    chars: int
    """The number of characters for which it counts in PREPARED_CHARS_MAX."""


class PreparedStatements:
    """A session's prepared statements by name. The unnamed statement's name is empty."""

    def __init__(self) -> None:
        self._by_name: dict[str, Prepared] = {}
        self._notes: dict[str, _Note] = {}
        self._chars = 0  # of the texts of the named statements

    @property
    def by_name(self) -> Mapping[str, Prepared]:
        return self._by_name

    def find(self, name: str) -> Prepared | None:
        return self._by_name.get(name)

    def get(self, name: str) -> Prepared:
        """PgError 26000 if there is no such statement."""
        prepared = self._by_name.get(name)
        if prepared is None:
            raise PgError(
                SqlState.INVALID_SQL_STATEMENT_NAME,
                f'prepared statement "{name}" does not exist' if name else "unnamed prepared statement does not exist",
            )
        return prepared

    def check_unused(self, name: str) -> None:
        """PgError 42P05 if a statement has this name. The unnamed statement can always be replaced."""
        if name and name in self._by_name:
            raise PgError(SqlState.DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{name}" already exists')

    def put(self, name: str, prepared: Prepared, text: str | None = None) -> None:
        """Adds a statement, which replaces the unnamed one. PgError 54000 if the others have too much text.

        `text`: that of the PREPARE statement; None if it was prepared by a message.
        """
        if name:
            note = _Note(time.time_ns() // 1_000, text, len(name) + weight(prepared) + len(text or ""))
            chars = self._chars + note.chars
            if self._chars and chars > PREPARED_CHARS_MAX:
                raise PgError(
                    SqlState.PROGRAM_LIMIT_EXCEEDED,
                    "too many prepared statements",
                    detail="The names and texts of a session's prepared statements, with the views that they name, may "
                    f"have {PREPARED_CHARS_MAX} characters.",
                    hint="Use DEALLOCATE for those that are not needed any more.",
                )
            self._chars = chars
            self._notes[name] = note
        self._by_name[name] = prepared

    def remove(self, name: str) -> Prepared | None:
        """Removes and returns the statement with this name, if there is one."""
        removed = self._by_name.pop(name, None)
        if name and removed is not None:
            self._chars -= self._notes.pop(name).chars
        return removed

    def remove_named(self) -> None:
        """Removes all statements except the unnamed one."""
        for name in self._notes:
            del self._by_name[name]
        self._notes.clear()
        self._chars = 0

    def clear(self) -> None:
        self.remove_named()
        self._by_name.clear()

    def rows(self) -> list[dict[str, object]]:
        """The rows of pg_prepared_statements. The executions of a statement are not counted."""
        return [
            {
                "name": name,
                "statement": prepared.text if note.text is None else note.text,
                "prepare_time": note.prepared_us,
                "parameter_types": [type.base_display for type in prepared.parameters],
                "result_types": None if prepared.fields is None else [f.type.base_display for f in prepared.fields],
                "from_sql": note.text is not None,
            }
            for name, note in self._notes.items()
            for prepared in (self._by_name[name],)
        ]


def weight(prepared: Prepared) -> int:
    """The number of characters for which a statement counts in limits on the memory of several."""
    return max(len(prepared.text), _size(prepared.plan)) + TEXT_CHARS_MIN


def _size(plan: Plan | None) -> int:
    match plan:
        case QueryPlan(size=size):
            return size
        case WritePlan(query=query) | SubscribePlan(query=query):
            return query.size
        case ValuesPlan(inner=inner):
            return _size(inner)
        case WithWritesPlan(parts=parts, main=main):
            return sum(_size(part.plan) for part in parts) + _size(main)
        case _:
            return 0
