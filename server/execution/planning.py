"""Planning of parts of statements: relations, expressions, column defaults, index keys, stored views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.relations import Relation
from catalog.objects.system_tables import SystemTable
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.dataflow.stream.order import OrderPlan, SortKey
from server.sql.expressions import Expression, walk
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.parts import Expr, Name, Query
from server.sql.grammar.statements.subscribe import WithinTimestampOrderBy
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.grammar.statements.views import CreateIndex
from server.sql.grammar.statements.writes import Insert
from server.sql.index_keys import bound_key, index_keys, stored_condition
from server.sql.plan import Field, PlanContext, QueryPlan, plan_query
from server.sql.relations import Series, Unnest
from server.sql.row_rules import varies
from server.sql.scope import ID_SCHEMA
from server.sql.stored_query import relation_query
from server.sql.type_names import sql_name
from server.sql.writes.statements import plan_insert


def plan_expression(expression: Expr, context: PlanContext, type: PgType | None = None) -> QueryPlan:
    """Plans an expression without column references, cast to `type` if given, as a query of one row and one column."""
    value = expression.tree.copy()
    if type is not None:
        (cast,) = parse_query(f"SELECT CAST(NULL AS {sql_name(type)})").tree.expressions
        cast.set("this", exp.Paren(this=value))
        value = cast
    return plan_query(Query(exp.Select(expressions=[value]), expression.text, expression.offset), context)


def plan_default(definition: ColumnDefinition, context: PlanContext) -> tuple[str | None, tuple[ObjectId, ...]]:
    """A column's DEFAULT as the catalog stores it: SQL text, and the sequences that it calls.

    Sequences and user-defined types are named by id. The text is None for a constant NULL, as if there were no DEFAULT,
    unless it replaces the default of the column's domain.

    PgError if it cannot be assigned to the column.
    """
    assert definition.default is not None
    refuse_subquery(definition.default, "DEFAULT expression")
    text = definition.default.text
    sequences: tuple[ObjectId, ...] = ()
    if _names_objects(text):
        query = Query(exp.Select(expressions=[definition.default.tree.copy()]), text, definition.default.offset)
        planned = plan_query(query, context, None)
        text, sequences = planned.stored_text, tuple(sorted(planned.sequences))
    id = ObjectId("new")
    column = Column(definition.name.name, str(definition.type), default=text)
    state = context.state
    table = Table(id, next(iter(state.schemas)), "", (column,))
    state = replace(state, items={**state.items, id: table})
    plan_insert(default_values(table), replace(context, state=state))
    if definition.domain is None and _is_null(definition.default.tree):
        return None, ()
    return text, sequences


def _is_null(tree: exp.Expr) -> bool:
    """Whether an expression is NULL, possibly cast to a type that is not user-defined."""
    while isinstance(tree, exp.Paren) or (isinstance(tree, exp.Cast) and not tree.to.is_type(exp.DType.USERDEFINED)):
        tree = tree.this
    return isinstance(tree, exp.Null)


def _names_objects(text: str) -> bool:
    """Whether an expression may name sequences (in nextval(), currval()) or user-defined types (in casts)."""
    return any(word in text.lower() for word in ("val", "::", "cast"))


def refuse_subquery(expression: Expr, where: str) -> None:
    """PgError 0A000: defaults and index keys are evaluated for any writer, so they cannot read relations."""
    if expression.tree.find(exp.Query) is not None:
        message = f"cannot use subquery in {where}"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=expression.position)


def default_values(table: Table) -> Insert:
    """INSERT INTO table DEFAULT VALUES."""
    return Insert("", 0, Name((ID_SCHEMA, table.id), 0), None, (), None, ())


def plan_index_condition(statement: CreateIndex, item: Relation, context: PlanContext) -> str:
    """The condition of an index over `item` as SQL text; "" without one. PgError 42804, 42703, 42P17, 0A000."""
    condition = statement.where
    if condition is None:
        return ""
    refuse_subquery(condition, "index predicate")
    bound, text = stored_condition(item.columns, condition, context)
    if _varies(bound):
        raise _not_immutable("predicate", condition)
    return text


def _varies(expression: int | Expression) -> bool:
    return not isinstance(expression, int) and any(map(varies, walk(expression)))


def _not_immutable(what: str, expression: Expr) -> PgError:
    message = f"functions in index {what} must be marked IMMUTABLE"
    return PgError(SqlState.INVALID_OBJECT_DEFINITION, message, position=expression.position)


def plan_index_keys(statement: CreateIndex, item: Relation, context: PlanContext) -> tuple[str, ...]:
    """The key expressions of an index over `item` as SQL text; all columns if none are given. PgError 42703, ..."""
    if not statement.keys:
        return tuple(quote_identifier(column.name) for column in item.columns)
    expressions = tuple(key.expression for key in statement.keys)
    for key in expressions:
        refuse_subquery(key, "index expression")
        if statement.unique and _varies(bound_key(item.columns, key, context=context)):
            raise _not_immutable("expression", key)
        tree = parse_query(f"SELECT FROM {quote_identifier(ID_SCHEMA)}.{quote_identifier(item.id)}").tree
        tree.set("expressions", [key.tree.copy()])
        if plan_query(Query(tree, key.text, key.offset), context, None, maintained=True).types:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "an index expression that names a user-defined type is not supported",
                hint="Write the literal without a cast.",
                position=key.position,
            )
    keys = tuple(key.text for key in expressions)
    index_keys(item.columns, keys)
    return keys


CHANGES = ObjectId("changes")


def plan_order(
    order: WithinTimestampOrderBy, relation: tuple[Field, ...], name: str | None, context: PlanContext
) -> OrderPlan:
    """Plans WITHIN TIMESTAMP ORDER BY over mz_diff (column 1), the relation's columns and expressions of them.

    `name` qualifies the columns; None for those of a query.
    """
    columns = (Column("mz_diff", "int8", False), *(Column(f.name, str(f.type), f.nullable) for f in relation))
    expressions: list[exp.Expr] = []
    positions: list[int] = []  # of the terms among the columns of the planned query
    for term in order.terms:
        position = _ordinal(term, len(columns))
        if position is None:
            position = len(columns) + len(expressions)
            expressions.append(term.tree.this.copy())
        positions.append(position)
    planned = _plan_changes(order, columns, expressions, name, context)
    for term, position in zip(order.terms, positions, strict=True):
        if planned.columns[position].type.name == "json":
            raise PgError(
                SqlState.UNDEFINED_FUNCTION,
                "could not identify an ordering operator for type json",
                hint="Use an explicit ordering operator or modify the query.",
                position=term.position,
            )
    keys = tuple(
        SortKey(bool(term.tree.args.get("desc")), bool(term.tree.args.get("nulls_first"))) for term in order.terms
    )
    return OrderPlan(planned, keys, tuple(positions))


def _plan_changes(
    order: WithinTimestampOrderBy,
    columns: tuple[Column, ...],
    expressions: Sequence[exp.Expr],
    name: str | None,
    context: PlanContext,
) -> QueryPlan:
    """The query `SELECT *, expressions FROM changes AS name`. `columns`: those of the changes.

    42803 for aggregates, 0A000 for set-returning functions and for subqueries that read relations.
    """
    state = context.state
    table = Table(CHANGES, next(iter(state.schemas)), "", columns)
    rows = relation_query(table).tree.copy()
    rows.set("expressions", [exp.Star()])  # not by name: two columns can have the same name
    changes = exp.Subquery(this=rows)  # hides the table's own name
    if name is not None:
        changes.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    tree = exp.Select(expressions=[exp.Star(), *expressions], from_=exp.From(this=changes))
    try:
        planned = plan_query(
            Query(tree, order.terms[0].text, order.terms[0].offset),
            replace(context, state=replace(state, items={**state.items, CHANGES: table})),
            None,
            maintained=True,
        )
    except PgError as error:
        if error.sqlstate != SqlState.GROUPING_ERROR:
            raise
        message = f"aggregate functions are not allowed in {_ORDER_BY}"
        raise PgError(SqlState.GROUPING_ERROR, message, position=order.terms[0].position) from None
    if any(isinstance(node, Series | Unnest) for node in walk(planned.relation)):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"set-returning functions are not allowed in {_ORDER_BY}",
            hint="Order by columns, or by expressions that return one value.",
        )
    if planned.inputs != {CHANGES}:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"subqueries cannot read relations in {_ORDER_BY}",
            hint="Join the relation in the query, and order by a column of the result.",
        )
    return planned


_ORDER_BY = "WITHIN TIMESTAMP ORDER BY"


def _ordinal(term: Expr, width: int) -> int | None:
    """The 0-based column that an ORDER BY term names by its number; None if the term is an expression."""
    value: exp.Expr = term.tree.this
    if isinstance(value, exp.Star):
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near "*"', position=term.offset + 1)
    negative = isinstance(value, exp.Neg)
    literal = value.this if negative else value
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string or not literal.this.isdigit():
        raise PgError(SqlState.SYNTAX_ERROR, "non-integer constant in ORDER BY", position=term.offset + 1)
    number = -int(literal.this) if negative else int(literal.this)
    if not 1 <= number <= width:
        message = f"ORDER BY position {number} is not in select list"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=term.offset + 1)
    return number - 1


def system_table_in(plan: QueryPlan, state: CatalogState) -> SystemTable | None:
    """A system table that the query reads, or None. Queries over system tables cannot be maintained."""
    for id in plan.inputs:
        item = state.items[id]
        if isinstance(item, SystemTable):
            return item
    return None
