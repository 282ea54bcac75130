"""Plans a statement so that it can be described and executed, with the types of its parameters and result.

Planning needs only the catalog: it chooses no timestamp, reads no data and does not call Spark. A `Prepared` stays
valid until the catalog or the session's name resolution changes (`key`); then the statement is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import CHAR, JSON, NAME, OID, TEXT, PgType, array_of, with_dimensions
from server.execution.catalog_query.query import is_catalog_query, plan_catalog_query, relations_of
from server.execution.catalog_query.values import Planned, computed_as, is_refusal, plan_with_values
from server.execution.names import find_relation
from server.execution.show import show_fields
from server.execution.subscribe import plan_subscribe
from server.execution.with_writes import plan_with_writes
from server.session_state.context import Context
from server.session_state.prepared import CatalogPlan, Plan, Prepared, ValuesPlan, WithWritesPlan, plan_key
from server.sql.bind.common_tables import VolatileItem
from server.sql.coerce import OtherDimensions
from server.sql.expressions import SessionValue, walk
from server.sql.grammar.parse import parse_storing
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.copy import CopyRelation, CopyTo
from server.sql.grammar.statements.cursors import Declare, Fetch
from server.sql.grammar.statements.explain import Explain, ExplainFormat, ExplainStage
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Query
from server.sql.grammar.statements.prepared import Execute
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.show import ShowColumns, ShowCreate, ShowObjects, ShowVariable
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.statements.tables import CreateTableAs
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import Field, QueryPlan, plan_query
from server.sql.stored_query import relation_query
from server.sql.writes.merge import plan_merge
from server.sql.writes.plan import WritePlan
from server.sql.writes.statements import plan_delete, plan_insert, plan_update

Types: TypeAlias = Sequence[PgType | None]

_OF_CATALOGS = frozenset(each for type in (OID, NAME, CHAR) for each in (type, array_of(type)))
"""Types of parameters that only the catalog engine has."""
_TEXT_FIELDS = (Field("QUERY PLAN", TEXT, False),)
_JSON_FIELDS = (Field("QUERY PLAN", JSON, False),)
_TIMESTAMP_FIELDS = (Field("Timestamp", TEXT, False),)


def prepare(
    context: Context,
    statement: Statement | None,
    types: Types = (),
    cursors: Mapping[str, Prepared] = {},
    named: Mapping[str, Prepared] = {},
) -> Prepared:
    """Plans a statement. `types`: the parameter types that the client declared. A client cannot declare the number of
    dimensions of an array: the statement determines it, unless it accepts any.

    `cursors`: by name, for FETCH. `named`: prepared statements by name, for EXECUTE. They may be missing until FETCH or
    EXECUTE is executed, as in PostgreSQL.
    """
    changed: set[int] = set()
    stored: list[str] = []
    while True:
        try:
            return _prepared(context, statement, types, cursors, named)
        except VolatileItem as refusal:
            if refusal.name in stored or statement is None:
                raise
            stored.append(refusal.name)
            parsed = parse_storing(statement, stored)
            if parsed is None:
                raise
            statement = parsed
        except OtherDimensions as error:
            number = error.index
            declared = types[number] if number < len(types) else None
            if declared is None or number in changed:
                raise
            changed.add(number)
            types = [*types[:number], with_dimensions(declared, error.dimensions), *types[number + 1 :]]


def _prepared(
    context: Context,
    statement: Statement | None,
    types: Types,
    cursors: Mapping[str, Prepared],
    named: Mapping[str, Prepared],
) -> Prepared:
    prepared = Prepared(statement, plan_key(context), declared=tuple(types))
    plan: Plan
    planned_types = _planned_types(types)
    match statement:
        case Select() | Insert() | Update() | Delete() | Merge():
            _set_plan(prepared, plan_statement(context, statement, types))
        case WithWrites():
            prepared.plan = planned = plan_with_writes(context, statement, planned_types)
            prepared.parameters, prepared.fields = planned.parameters, planned.fields
        case CreateTableAs(query=query):
            prepared.plan = plan = plan_query(query, context.plan_context(), planned_types)
            prepared.parameters = plan.parameters
        case Subscribe():
            plan = plan_subscribe(context, statement, planned_types)
            prepared.plan, prepared.fields = plan, plan.envelope.fields
            prepared.parameters = plan.query.parameters
        case Declare(statement=inner) if _takes_parameters(inner):
            # The parameter types are needed now. Without parameters the cursor is planned when it is declared.
            prepared.parameters = prepare(context, inner, types).parameters
        case ShowVariable() | ShowObjects() | ShowColumns() | ShowCreate():
            if isinstance(statement, ShowVariable) and statement.name is not None:
                context.settings[statement.name]  # raises for an unknown name, so that Describe reports it
            prepared.fields = show_fields(statement)
        case Explain(statement=inner):
            if isinstance(inner, Select | Insert | Update | Delete | Merge | CreateTableAs | Subscribe):
                prepared.parameters = prepare(context, inner, types).parameters
            prepared.fields = explain_fields(statement)
        case Fetch(cursor=cursor):
            prepared.fields = cursors[cursor.name].fields if cursor.name in cursors else None
        case Execute(name=name):
            prepared.fields = named[name.name].fields if name.name in named else None
        case CopyTo():
            prepared.plan = plan_copy(context, statement)
        case _:
            pass
    if prepared.plan is None and not prepared.parameters:  # as in PostgreSQL, values are needed for all declared types
        prepared.parameters = tuple([type for type in types if type is not None])
    declared = {number: type for number, type in enumerate(types) if type in _OF_CATALOGS}
    if declared:  # the client sends values of these types
        prepared.parameters = tuple(declared.get(number, type) for number, type in enumerate(prepared.parameters))
    return prepared


def _planned_types(types: Types) -> Types:
    return [computed_as(type) if type in _OF_CATALOGS and type is not None else type for type in types]


def _takes_parameters(statement: Statement) -> bool:
    match statement:
        case Select(query=query) | Subscribe(source=Query() as query):
            return query.tree.find(exp.Parameter) is not None
        case _:
            return False


def _set_plan(prepared: Prepared, plan: QueryPlan | CatalogPlan | ValuesPlan | WritePlan) -> None:
    prepared.plan = plan
    match plan:
        case QueryPlan() | CatalogPlan():
            prepared.parameters, prepared.fields = plan.parameters, plan.columns
        case ValuesPlan():
            prepared.parameters, prepared.fields = plan.parameters, plan.fields
        case WritePlan():
            prepared.parameters = plan.query.parameters
            prepared.fields = plan.fields


def plan_statement(
    context: Context, statement: Planned, types: Types = ()
) -> QueryPlan | CatalogPlan | ValuesPlan | WritePlan:
    """The plan of a query or a write. The catalog engine plans queries over system relations, and expressions."""

    def planned(statement: Planned, types: Types) -> QueryPlan | WritePlan:
        return _plan_over_users(context, statement, _planned_types(types))

    if isinstance(statement, Select) and is_catalog_query(context, statement):
        return _plan_over_catalogs(context, statement, types, planned)
    try:
        return planned(statement, types)
    except PgError as refusal:
        found = plan_with_values(context, statement, types, planned) if is_refusal(refusal) else None
        if found is None:
            raise
        return found


def _plan_over_users(context: Context, statement: Planned, types: Types) -> QueryPlan | WritePlan:
    match statement:
        case Select():
            plan = plan_query(statement.query, context.plan_context(), types)
            if statement.as_of is not None:
                _check_as_of(plan)
            return plan
        case Insert():
            return plan_insert(statement, context.plan_context(), types)
        case Update():
            return plan_update(statement, context.plan_context(), types)
        case Delete():
            return plan_delete(statement, context.plan_context(), types)
        case Merge():
            return plan_merge(statement, context.plan_context(), types)


def _plan_over_catalogs(
    context: Context, statement: Select, types: Types, planned: Callable[[Planned, Types], QueryPlan | WritePlan]
) -> CatalogPlan | QueryPlan | ValuesPlan:
    """Plans a query over system relations for the catalog engine, or for Spark if it uses what the engine lacks.

    Spark has more functions, and rows as values. A query without relations can use both: the catalog engine computes
    its expressions over system catalogs. `planned` plans the rest of it. PgError if the query is not supported.
    """
    try:
        return plan_catalog_query(context, statement, types)
    except PgError as refusal:
        if refusal.sqlstate not in (SqlState.UNDEFINED_FUNCTION, SqlState.FEATURE_NOT_SUPPORTED):
            raise
        try:
            return plan_query(statement.query, context.plan_context(), types)
        except PgError:
            pass
        try:
            is_of_constants = not relations_of(context, statement.query.tree)
            found = plan_with_values(context, statement, types, planned) if is_of_constants else None
        except PgError:
            raise refusal from None
        if found is None:
            raise refusal from None
        return found


def _check_as_of(plan: QueryPlan) -> None:
    """PgError 0A000 if the query calls a function of the session or the clock: its value is not that at AS OF."""
    for node in walk(plan.relation):
        if isinstance(node, SessionValue) and node.name != "mz_now":
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "unmaterializable function (except `mz_now`) in an AS OF query not yet supported",
                detail=f"The query calls {node.name}().",
                hint="Write the value as a constant, or use mz_now().",
            )


def plan_copy(context: Context, statement: CopyTo) -> Plan:
    """The plan of the rows that COPY ... TO STDOUT sends."""
    match statement.source:
        case CopyRelation(relation=name, columns=columns):
            item = find_relation(context, name)
            for column in columns:
                if column.name not in (c.name for c in item.columns):
                    raise PgError(
                        SqlState.UNDEFINED_COLUMN,
                        f'column "{column.name}" of relation "{item.name}" does not exist',
                        position=column.position,
                    )
            copied = tuple(c.name for c in columns) or tuple(c.name for c in item.columns if not c.generated)
            return plan_query(relation_query(item, copied), context.plan_context())
        case Subscribe() as subscribe:
            return plan_subscribe(context, subscribe, None)
        case source:
            if isinstance(source, WithWrites):
                plan: Plan = plan_with_writes(context, source, ())
            else:
                plan = plan_statement(context, source)
            if isinstance(plan, ValuesPlan | WritePlan | WithWritesPlan) and plan.fields is None:
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "COPY query must have a RETURNING clause")
            return plan


def explain_fields(statement: Explain) -> tuple[Field, ...]:
    """The single column of an EXPLAIN."""
    if statement.stage is ExplainStage.TIMESTAMP:
        return _TIMESTAMP_FIELDS
    return _JSON_FIELDS if statement.format is ExplainFormat.JSON else _TEXT_FIELDS
