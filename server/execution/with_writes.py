"""WITH whose items write, or call volatile functions and are referenced more than once: each such item is a part. Parts
are planned and executed in order, and all read the same snapshot.

No part sees the changes of another one: a part reads the transaction's own changes as they were before the statement.
The rows of a part, those of RETURNING, are a relation that exists only during the statement. Each part is executed once
and completely. All changes have one timestamp, because an implicit transaction ends after the last part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from catalog import builtin, updates
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.namespaces import Schema
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT, PgType
from server.coordinator.snapshot_cache import collection_schema
from server.dataflow.runtime.spark_rows import shaped
from server.execution.catalog_query.query import is_catalog_query
from server.execution.ddl.columns import check_types
from server.execution.select import select
from server.execution.write import retried, write
from server.session_state.context import Context
from server.session_state.prepared import WithWritesPlan, WritingPart
from server.session_state.results import Result
from server.session_state.transaction import Transaction
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Ident, Query
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.with_writes import WithWrites, Write, WritingItem
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import Field, PlanContext, QueryPlan, plan_query
from server.sql.writes.merge import plan_merge
from server.sql.writes.plan import WritePlan
from server.sql.writes.statements import plan_delete, plan_insert, plan_update

_SCHEMA = Schema(ObjectId("w"), None, "WITH")
"""The schema of the relations of RETURNING rows. No search path contains it, and no session's catalog has it."""
_UNDETERMINED = "could not determine data type of parameter $"

Planned = TypeVar("Planned", QueryPlan, WritePlan)


# -- planning -------------------------------------------------------------------------------------------------------


def plan_with_writes(context: Context, statement: WithWrites, types: Sequence[PgType | None]) -> WithWritesPlan:
    """Plans the parts in order. PgError."""
    planner = _Planner(context, types)
    silent: dict[str, Ident] = {}
    parts: list[WritingPart] = []
    for item in statement.items:
        _check_returning(item.statement, silent)
        plan: QueryPlan | WritePlan
        if isinstance(item.statement, Select):
            plan = planner.query(item.statement)
            rows = planner.relation(item, plan.columns)
        else:
            plan = planner.write(item.statement)
            rows = planner.relation(item, plan.fields)
        parts.append(WritingPart(plan, _verb(item.statement), rows))
        if not item.returns:
            silent[item.name.name] = item.name
    _check_returning(statement.main, silent)
    main = statement.main
    if isinstance(main, Select):
        if is_catalog_query(context, main):
            raise _catalogs_refused()
        planned: QueryPlan | WritePlan = planner.query(main)
    else:
        planned = planner.write(main)
    return WithWritesPlan(tuple(parts), planned, _verb(main), _SCHEMA, planner.parameters())


def _catalogs_refused() -> PgError:
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "a query over system catalogs with a WITH that writes is not supported",
        hint="Query the catalogs by another statement.",
    )


def _verb(statement: Write | Select) -> str:
    return type(statement).__name__.upper()


class _Planner:
    """Plans the parts of a statement. Each part determines the types of the parameters that it uses."""

    def __init__(self, context: Context, types: Sequence[PgType | None]) -> None:
        self._context = context.plan_context()
        self._types = list(types)
        self._undetermined: dict[int, PgError] = {}
        self._add(_SCHEMA)

    def _add(self, added: Schema | Table) -> None:
        state = self._context.state
        if isinstance(added, Schema):
            state = replace(state, schemas={**state.schemas, added.id: added})
        else:
            state = replace(state, items={**state.items, added.id: added})
        self._context = replace(self._context, state=state)

    def relation(self, item: WritingItem, fields: Sequence[Field] | None) -> Table | None:
        """The relation of an item's RETURNING rows, which later parts can read."""
        if fields is None:
            return None
        names = [Ident(field.name, item.name.position) for field in fields]
        check_types(names, (field.type for field in fields))
        columns = tuple(Column(field.name, str(field.type), field.nullable) for field in fields)
        table = Table(item.id, _SCHEMA.id, item.name.name, columns)
        self._add(table)
        derived = {**self._context.derived, table.id: tuple(field.origin for field in fields)}
        self._context = replace(self._context, derived=derived)
        return table

    def write(self, statement: Write) -> WritePlan:
        if isinstance(statement, Update | Delete) and statement.current_of is not None:
            hint = "Execute the statement by itself, or name the row by its key in WHERE."
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "WHERE CURRENT OF in a WITH is not supported", hint=hint)

        def planned(context: PlanContext, types: Sequence[PgType | None]) -> WritePlan:
            match statement:
                case Insert():
                    return plan_insert(statement, context, types)
                case Update():
                    return plan_update(statement, context, types)
                case Delete():
                    return plan_delete(statement, context, types)
                case Merge():
                    return plan_merge(statement, context, types)

        return self._planned(planned, lambda plan: plan.query.parameters)

    def query(self, statement: Select) -> QueryPlan:
        return self._planned(
            lambda context, types: plan_query(statement.query, context, types), lambda plan: plan.parameters
        )

    def _planned(
        self,
        plan: Callable[[PlanContext, Sequence[PgType | None]], Planned],
        parameters: Callable[[Planned], tuple[PgType, ...]],
    ) -> Planned:
        """Plans a part. A parameter that it does not use gets any type, because another part determines it."""
        types, unused = list(self._types), set[int]()
        while True:
            try:
                planned = plan(self._context, types)
                break
            except PgError as error:
                if error.sqlstate is not SqlState.INDETERMINATE_DATATYPE or not error.message.startswith(_UNDETERMINED):
                    raise
                number = int(error.message.removeprefix(_UNDETERMINED))
                if number in unused:
                    raise
                unused.add(number)
                types += [None] * (number - len(types))
                types[number - 1] = TEXT
                self._undetermined.setdefault(number, error)
        query = planned if isinstance(planned, QueryPlan) else planned.query
        if not builtin.PG_TABLES.keys().isdisjoint(query.inputs):
            raise _catalogs_refused()
        found = parameters(planned)
        self._types += [None] * (len(found) - len(self._types))
        for number, type in enumerate(found, 1):
            if number not in unused:
                self._types[number - 1] = type
                self._undetermined.pop(number, None)
        return planned

    def parameters(self) -> tuple[PgType, ...]:
        """The types of all parameters. PgError 42P18 if no part determines one of them."""
        for number, type in enumerate(self._types, 1):
            if type is None:
                raise self._undetermined.get(number) or PgError(
                    SqlState.INDETERMINATE_DATATYPE, f"{_UNDETERMINED}{number}"
                )
        return tuple(type for type in self._types if type is not None)


def _check_returning(statement: Write | Select, silent: Mapping[str, Ident]) -> None:
    """PgError 0A000 if a part reads an item without RETURNING."""
    if not silent:
        return
    for query in _queries(statement):
        for table in query.find_all(exp.Table):
            if table.name in silent and not table.args.get("db"):
                message = f'WITH query "{table.name}" does not have a RETURNING clause'
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)


def _queries(statement: Write | Select) -> list[exp.Expr]:
    found: list[Query | Expr | None]
    match statement:
        case Select(query=query):
            return [query.tree]
        case Insert(source=source, common_tables=common_tables):
            found = [source, common_tables]
        case Update(others=others, common_tables=common_tables) | Delete(others=others, common_tables=common_tables):
            found = [others, common_tables, statement.where]
        case Merge(source=source, common_tables=common_tables):
            found = [source, common_tables]
    return [part.tree for part in found if part is not None]


# -- execution ------------------------------------------------------------------------------------------------------


async def write_with(context: Context, plan: WithWritesPlan, parameters: tuple[object, ...]) -> Result:
    """Executes the parts in order, and then the main statement, whose result is returned. PgError."""
    return await retried(context, lambda _: _execute(context, plan, parameters))


async def _execute(context: Context, plan: WithWritesPlan, parameters: tuple[object, ...]) -> Result:
    if context.transaction.has_effects and not context.transaction.is_shared:
        await context.commit()
    transaction = context.transaction
    is_shared, catalog = transaction.is_shared, transaction.catalog
    tables = [part.rows for part in plan.parts if part.rows is not None]
    base = context.state if catalog is None else catalog[0]
    transaction.begin_statement(frozenset(table.id for table in tables))
    transaction.catalog = (base, _with_relations(context, plan.schema, tables))
    try:
        result = await _parts(context, transaction, plan, parameters)
    except BaseException:
        if not is_shared:
            transaction.statement = None
            context.rollback()
        raise
    finally:
        transaction.statement = None
        transaction.catalog = catalog
    if not is_shared and not context.ends_at_sync:
        await context.commit()
    return result


def _with_relations(context: Context, schema: Schema, tables: Sequence[Table]) -> CatalogState:
    """The session's catalog with relations that the session's role owns."""
    state = context.state
    return replace(
        state,
        schemas={**state.schemas, schema.id: schema},
        items={**state.items, **{table.id: table for table in tables}},
        owners={**state.owners, **{table.id: context.role for table in tables}},
    )


async def _parts(
    context: Context, transaction: Transaction, plan: WithWritesPlan, parameters: tuple[object, ...]
) -> Result:
    assert transaction.statement is not None
    rows_of = transaction.statement.rows_of
    removed: dict[ObjectId, pa.Table] = {}
    for part in plan.parts:
        if isinstance(part.plan, QueryPlan):
            result = await select(context, part.plan, None, parameters)
        else:
            mark = _Mark(transaction)
            result = await write(context, part.plan, part.verb, parameters)
            await _check_changed_once(context, part.plan, mark, removed)
        if part.rows is not None:
            assert result.rows is not None
            rows_of[part.rows.id] = shaped(await result.rows.take(None), collection_schema(part.rows))
    if isinstance(plan.main, QueryPlan):
        return await select(context, plan.main, None, parameters)
    mark = _Mark(transaction)
    result = await write(context, plan.main, plan.verb, parameters)
    await _check_changed_once(context, plan.main, mark, removed)
    return result


class _Mark:
    """The numbers of a transaction's changes at a time."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._writes = {id: len(tables) for id, tables in transaction.writes.items()}
        self._payloads = len(transaction.payloads)

    def changes_of(self, id: ObjectId) -> list[pa.Table]:
        """The later changes of a table, without the rows of INSERTs of constants."""
        payloads = self._transaction.payloads[self._payloads :]
        later = self._transaction.writes.get(id, [])[self._writes.get(id, 0) :]
        return later + [payload.table for table, payload in payloads if table == id]


async def _check_changed_once(
    context: Context, plan: WritePlan, mark: _Mark, removed: dict[ObjectId, pa.Table]
) -> None:
    """PgError 21000 if a part has updated or deleted a row that an earlier part has updated or deleted.

    `removed`: the rows that earlier parts have removed from each table, to which those of this part are added.
    """
    tables = [table for table in mark.changes_of(plan.table) if updates.has_retractions(table)]
    if not tables:
        return
    changes = pa.concat_tables([updates.as_changes(table) for table in tables])
    gone = changes.filter(pa.compute.less(changes.column(updates.DIFF), 0))
    distinct = updates.with_diff(updates.rows_of(updates.consolidate(gone)), 1)
    before = removed.get(plan.table)
    if before is None:
        removed[plan.table] = distinct
        return
    both = pa.concat_tables([before, distinct])
    merged = updates.consolidate(both)
    if merged.num_rows < both.num_rows:
        name = context.state.items[plan.table].name
        message = f'a row of table "{name}" cannot be changed twice by one statement'
        raise PgError(SqlState.CARDINALITY_VIOLATION, message)
    removed[plan.table] = merged
