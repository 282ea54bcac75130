"""Planner: queries to plans. Nothing is executed. `writes` plans INSERT, UPDATE, DELETE and MERGE.

    text -> parse.py -> sqlglot's tree -> bind (names, types) -> relations.py -> render -> Spark SQL
                                                                               \\-> constant.py, no Spark needed

A plan's columns have PostgreSQL's names and types. Its Spark SQL reads a view for each input, named by its ObjectId,
with columns c0, c1, ... in catalog order and each row repeated by its multiplicity. The output columns are
c0, c1, ... and have exactly the Spark types that map to `PgType.arrow`. The engine translates errors that Spark itself
raises. `raise_error('<code>:<message>')` carries PostgreSQL's SQLSTATE and message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.bind import Binder, Origin, PlanContext, assigned, origins
from server.sql.bind.row_locks import scans_of
from server.sql.coerce import check_digits
from server.sql.constant import Bindings, Constant, compiled, session_value
from server.sql.decorrelate import decorrelated, values_joined
from server.sql.direct_scan import DirectScan, direct_scan
from server.sql.expressions import (
    Cast,
    Column,
    Expression,
    Literal,
    Parameter,
    SessionValue,
    Subquery,
    Volatile,
    precision,
    transform,
    walk,
)
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.lexer import TARGETS_MAX, too_many_targets
from server.sql.grammar.statements.parts import Query
from server.sql.group_keys import grouped_by_keys
from server.sql.index_lookups import Lookup, lookups_of
from server.sql.key_conditions import KeyCondition, key_filters
from server.sql.recursion import Recursion, recursions, statements_of
from server.sql.relations import Recursive, Relation, RowLocks, Scan
from server.sql.render import Renderer, spark_text
from server.sql.render.expressions import Bind
from server.sql.rewrite.float_sums import sums_split
from server.sql.rewrite.spreads import spreads_from_sums
from server.sql.rowwise import RowwisePlan, is_rowwise
from server.sql.scope import Scope
from server.sql.temporal import check_temporal
from server.sql.volatile import calls_in, deferred, random_placed
from server.sql.waiting import check_once, is_waiting


@dataclass(frozen=True, slots=True)
class Field:
    """An output column."""

    name: str
    type: PgType
    nullable: bool
    origin: Origin | None = field(default=None, compare=False)
    """The relation's column that it is; None for a computed column, and in a maintained query."""


@dataclass(frozen=True, slots=True)
class VolatilePlan:
    """How a query with volatile `calls` is computed: see `volatile.Deferred`. `lower` None: the query is a constant."""

    calls: tuple[Volatile, ...]
    lower: QueryPlan | None
    columns: tuple[int | Expression, ...]


@dataclass(slots=True, eq=False)
class Permitted:
    """The role that was last found to have the privileges for a plan, and `CatalogState.token` at that time."""

    token: object = None
    role: ObjectId | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryPlan:
    """A planned query."""

    columns: tuple[Field, ...]
    """The columns of the result."""
    parameters: tuple[PgType, ...]
    """The types of the parameters $1, $2, ..."""
    relation: Relation
    """The query as relational nodes."""
    template: str
    """The Spark SQL, with placeholders for the values that are bound at execution. Empty for a constant."""
    values_joined: Relation | None = None
    """The query for small inputs, if it has scalar subqueries: see `decorrelate.values_joined`."""
    is_bound: bool
    """Whether there are no values to bind."""
    stored_text: str
    """The text with relations named by id, so that it keeps its meaning when relations are renamed."""
    size: int = 0
    """The number of columns and expressions, those of views included."""

    # What the query names and reads
    inputs: frozenset[ObjectId]
    """The collections and system tables that the query reads, with all views expanded."""
    scanned: frozenset[ObjectId]
    """The relations that the Spark SQL reads: `inputs`, except that an indexed view is read from its index."""
    expanded: Callable[[], QueryPlan] | None = None
    """Plans the query with indexed views expanded, for when the index cannot be read. None if it reads no such view."""
    uses: frozenset[ObjectId]
    """The relations that the text names."""
    types: frozenset[ObjectId] = frozenset()
    """The user-defined types that the text names."""
    sequences: frozenset[ObjectId] = frozenset()
    """The sequences that the text names as arguments of nextval() and similar functions."""
    reads: frozenset[tuple[ObjectId, int]] = frozenset()
    """The columns that the text names, by relation and number."""
    tables: tuple[Table, ...] = ()
    """The tables among `inputs`, as they are defined."""
    views: tuple[View, ...] = ()
    """The views that the text names, and those that their queries name, as they are defined."""
    row_locks: RowLocks | None = None
    """Set if the query locks rows that it reads."""
    keyed: tuple[QueryPlan, int] | None = None
    """Set for SKIP LOCKED: a plan of the same query, perhaps with one more column at the end, and the number of its
    column with the primary keys of the rows to lock. None if the rows of a table cannot be locked one by one.
    """
    permitted: Permitted = field(default_factory=Permitted, init=False)
    """See `server.authorization.privileges.require_query`. `replace` does not copy it."""

    # How the query can be computed with less work
    constant: Constant | None
    """Set if the query reads no relation and needs no Spark."""
    direct_scan: DirectScan | None
    """Set if the query returns rows of one relation unchanged, so that no Spark is needed."""
    rowwise: RowwisePlan | None
    """Set if Spark computes each output row from one row of the only relation that is read."""
    lookups: Mapping[ObjectId, Lookup]
    """The scanned relations of which only rows with given keys are needed, so that an index can serve them."""
    key_filters: Mapping[ObjectId, tuple[KeyCondition, ...]]
    """The scanned relations of which only rows that meet key conditions are needed."""

    # What the execution must do in addition
    uses_session: bool
    """Whether the rows depend on the session or the clock."""
    waits: bool = False
    """Whether the query is a constant that calls a function of `waiting`."""
    volatile: VolatilePlan | None = None
    """Set if the query calls a function of `volatile` that Spark does not evaluate."""
    recursive: tuple[Recursive, ...] = ()
    """The recursive queries with UNION, whose rows are computed before those of the plan."""

    def spark_sql(self, bindings: Bindings | None = None, *, small: bool = False) -> str:
        """The Spark SQL, with parameters and session values as literals.

        `bindings` may be None only if the plan `is_bound`. `small`: for inputs that are small enough that Spark
        prepares the statement.
        """
        if self.volatile is not None and self.volatile.lower is not None:
            return self.volatile.lower.spark_sql(bindings, small=small)
        if small and self.values_joined is not None:
            return Renderer(self.values_joined, _binding(bindings)).text()
        if self.is_bound and self.template:
            return self.template
        return Renderer(self.relation, _binding(bindings)).text()

    def recursions(self, bindings: Bindings | None = None) -> list[Recursion]:
        """The statements that compute the rows of `recursive`, in this order. `bindings` is as in `spark_sql`."""
        return [statements_of(node, _binding(bindings)) for node in self.recursive]

    @property
    def fingerprint(self) -> str:
        """A text that is equal only for plans that compute the same query over the same objects."""
        text = str(self.relation) if self.recursive else self.template or str(self.relation)
        return f"{text} -> {', '.join(str(column.type) for column in self.columns)}"


def _binding(bindings: Bindings | None) -> Bind:
    """Returns a function that replaces parameters and session values by literals."""

    def bind(expression: Parameter | SessionValue) -> Literal:
        assert bindings is not None
        if isinstance(expression, Parameter):
            return Literal(bindings.parameters[expression.index], expression.type)
        return Literal(session_value(expression, bindings), expression.type)

    return bind


def plan_query(
    query: Query,
    context: PlanContext,
    parameter_types: Sequence[PgType | None] | None = (),
    *,
    maintained: bool = False,
    keyed: bool = False,
) -> QueryPlan:
    """Plans a query.

    `parameter_types`: the types that the client declared, None for each one to be inferred. None instead of a
    sequence: parameters are not allowed. `maintained`: the query is for a materialized view, an index or SUBSCRIBE, so
    volatile functions are rejected (0A000).
    """
    binder = Binder(context, parameter_types, text=query.text, offset=query.offset, maintained=maintained)
    binder.root, binder.adds_key = query.tree, keyed
    plan, number = reject_deep_nesting(lambda: _finished_query(binder, query))
    if len(plan.columns) > TARGETS_MAX:
        raise too_many_targets()
    if number is not None and not keyed:
        plan = replace(plan, keyed=(plan_query(query, context, plan.parameters, keyed=True), number))
    if plan.scanned <= plan.inputs:
        return plan
    expanding = replace(context, views_expanded=True)

    def expanded() -> QueryPlan:
        return plan_query(query, expanding, plan.parameters, keyed=keyed)

    if plan.volatile is not None and plan.volatile.lower is not None:
        lower = replace(plan.volatile.lower, expanded=lambda: _lower(expanded()))
        plan = replace(plan, volatile=replace(plan.volatile, lower=lower))
    return replace(plan, expanded=expanded)


def _finished_query(binder: Binder, query: Query) -> tuple[QueryPlan, int | None]:
    """The plan of a query, and the number of its column with the primary keys of the rows that SKIP LOCKED concerns.

    None without SKIP LOCKED, and if the rows cannot be locked one by one, for example because the query reads their
    table more than once, also where it concerns all rows. 0A000 then if SKIP LOCKED is in a subquery.
    """
    relation = binder.query(query.tree, Scope())
    plan = finished_plan(binder, relation, query)
    locks = plan.row_locks
    if locks is None or not locks.skips or not locks.tables:
        return plan, None
    is_root = bool(query.tree.args.get("locks"))
    number = None
    if locks.key is not None and len(scans_of(binder, plan.relation, locks.tables)) == 1:
        keys = (number for number, column in enumerate(relation.columns) if column.id in binder.locked_keys)
        number = len(plan.columns) if is_root else next(keys, None)
    if number is None and not is_root:
        raise binder.unsupported(
            "SKIP LOCKED in a subquery whose rows the query does not identify",
            query.tree,
            hint="Return the table's primary key, too, or lock the rows in a SELECT of its own in the transaction.",
        )
    return plan, number


def _lower(plan: QueryPlan) -> QueryPlan:
    assert plan.volatile is not None
    assert plan.volatile.lower is not None
    return plan.volatile.lower


Plan = TypeVar("Plan")


def reject_deep_nesting(plan: Callable[[], Plan]) -> Plan:
    """Returns `plan()`. 54001 if the statement is nested too deeply for the recursive planner."""
    try:
        return plan()
    except RecursionError:
        raise PgError(
            SqlState.STATEMENT_TOO_COMPLEX,
            "stack depth limit exceeded",
            hint="Write the statement with less nesting.",
        ) from None


def bound(plan: QueryPlan, parameters: Sequence[object]) -> QueryPlan:
    """The plan with parameters replaced by literals. A maintained query has a dataflow per parameter value."""
    if not plan.parameters:
        return plan

    def value(node: object) -> Literal | None:
        return Literal(parameters[node.index], node.type) if isinstance(node, Parameter) else None

    return reject_deep_nesting(lambda: _with_relation(replace(plan, parameters=()), transform(plan.relation, value)))


# -- finishing a query ----------------------------------------------------------------------------------------------


def finished_plan(binder: Binder, relation: Relation, source: Query | None) -> QueryPlan:
    """The plan of a bound relation. `source`: its text, if the plan needs a `stored_text`."""
    for node in walk(relation):
        if isinstance(node, Literal):
            check_digits(node)
    found = () if binder.maintained else origins(binder, relation)
    relation = assigned(binder, relation, lambda number, e: _of_full_precision(binder.as_output(e)))
    parameters = []
    for number, type in enumerate(binder.parameters, 1):
        if type is None:
            message = f"could not determine data type of parameter ${number}"
            raise PgError(SqlState.INDETERMINATE_DATATYPE, message)
        parameters.append(type)
    if binder.has_group_keys:
        relation = grouped_by_keys(relation)
    if binder.maintained:
        check_temporal(relation)
    checkpoint()
    relation = decorrelated(relation)
    if not binder.maintained:  # `rewrite` does it for maintained queries, after subqueries have become joins
        relation = sums_split(spreads_from_sums(random_placed(relation)))
    items = binder.context.state.items
    plan = QueryPlan(
        columns=_fields(relation, found),
        parameters=tuple(parameters),
        inputs=frozenset(binder.inputs),
        scanned=frozenset(),
        uses=frozenset(binder.uses),
        types=frozenset(binder.types),
        lookups={},
        key_filters={},
        rowwise=None,
        stored_text="" if source is None else binder.stored_text(source),
        relation=relation,
        direct_scan=None,
        constant=None,
        template="",
        is_bound=False,
        uses_session=any(isinstance(node, SessionValue) for node in walk(relation)),
        reads=frozenset(binder.reads),
        sequences=frozenset(binder.sequences),
        row_locks=binder.row_locks,
        size=binder.size,
        tables=tuple(item for id in binder.inputs if isinstance(item := items.get(id), Table)),
        views=tuple(binder.views.values()),
    )
    plan = _with_relation(plan, relation)
    if binder.maintained:
        return plan
    if plan.volatile is not None and (lower := plan.volatile.lower) is not None:
        lower = replace(lower, lookups=lookups_of(lower.relation, lower.scanned, binder.context.state))
        return replace(plan, volatile=replace(plan.volatile, lower=lower))
    return replace(plan, lookups=lookups_of(relation, plan.scanned, binder.context.state))


def relation_plan(relation: Relation) -> QueryPlan:
    """The plan of a relation over one table of rows that are given at execution."""
    plan = QueryPlan(
        columns=_fields(relation),
        parameters=(),
        inputs=frozenset(),
        scanned=frozenset(),
        uses=frozenset(),
        lookups={},
        key_filters={},
        rowwise=None,
        stored_text="",
        relation=relation,
        direct_scan=None,
        constant=None,
        template="",
        is_bound=False,
        uses_session=True,
    )
    return _with_relation(plan, relation)


def column_factory(relation: Relation | None, *others: Column) -> Callable[[Expression], Column]:
    """A function that returns new columns, whose ids differ from those of the relation and of `others`."""
    columns = [c for node in (walk(relation) if relation is not None else ()) for c in getattr(node, "columns", ())]
    ids = count(1 + max((column.id for column in (*columns, *others)), default=0))

    def column(expression: Expression) -> Column:
        digits = precision(expression) if expression.type.name == "numeric" else 0
        return Column(next(ids), "", expression.type, expression.nullable, digits)

    return column


def _fields(relation: Relation, origins: Sequence[Origin | None] = ()) -> tuple[Field, ...]:
    origins = origins or (None,) * len(relation.columns)
    return tuple(Field(c.name, c.type, c.nullable, o) for c, o in zip(relation.columns, origins, strict=True))


def _with_relation(plan: QueryPlan, relation: Relation) -> QueryPlan:
    """The plan with another relation, and with the fields that depend on the relation computed for it."""
    checkpoint()
    constant = compiled(relation)
    checkpoint()
    nodes = list(walk(relation))
    checkpoint()
    calls = tuple(calls_in(relation))
    if calls and constant is None and (divided := deferred(relation, column_factory(relation))) is not None:
        lower = _with_relation(replace(plan, columns=_fields(divided.lower)), divided.lower)
        volatile = VolatilePlan(divided.calls, lower, divided.columns)
        return replace(plan, relation=relation, scanned=lower.scanned, key_filters=lower.key_filters, volatile=volatile)
    scan = direct_scan(relation)
    if waits := any(map(is_waiting, nodes)):
        check_once(relation, is_constant=constant is not None)
    return replace(
        plan,
        relation=relation,
        scanned=frozenset(node.id for node in nodes if isinstance(node, Scan)),
        key_filters=key_filters(nodes),
        rowwise=None if calls or scan is not None or not is_rowwise(relation) else RowwisePlan(relation),
        direct_scan=scan,
        constant=constant,
        # rendered even if Spark may not be needed: rendering rejects what Spark cannot do, at planning time
        template="" if constant is not None else spark_text(relation),
        values_joined=values_joined(relation) if any(isinstance(node, Subquery) for node in nodes) else None,
        waits=waits,
        recursive=recursions(relation) if any(isinstance(node, Recursive) for node in nodes) else (),
        volatile=VolatilePlan(calls, None, ()) if calls and constant is not None else None,
        is_bound=not any(isinstance(node, (Parameter, SessionValue, Volatile)) for node in nodes),
    )


def _of_full_precision(expression: Expression) -> Expression:
    """Casts a numeric output column to the precision of its Arrow type."""
    if expression.type.name == "numeric" and precision(expression) != (expression.type.precision or 38):
        if isinstance(expression, Literal):
            return expression
        return Cast(expression, expression.type)
    return expression


__all__ = ["Bindings", "Field", "PlanContext", "QueryPlan", "bound", "plan_query"]
