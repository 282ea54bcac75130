"""What statements need planned beside whole queries: relations, expressions, defaults, index keys, stored views."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from catalog.objects import CatalogState, Column, Item, ObjectId, SystemTable, Table
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.dataflow.order import OrderPlan, SortKey
from server.sql.lexer import quote_identifier
from server.sql.parse import parse_query
from server.sql.plan import Field, PlanContext, QueryPlan, plan_insert, plan_query
from server.sql.scope import ID_SCHEMA
from server.sql.statements import ColumnDefinition, CreateIndex, Expr, Insert, Name, Query, WithinTimestampOrderBy


def relation_query(item: Item, columns: tuple[str, ...] = ()) -> Query:
    """SELECT columns FROM the relation, all without any; the relation is named by its id."""
    chosen = columns or tuple(column.name for column in item.columns)
    names = ", ".join(map(quote_identifier, chosen))
    return parse_query(f"SELECT {names} FROM {quote_identifier(ID_SCHEMA)}.{quote_identifier(item.id)}")


def plan_expression(expression: Expr, context: PlanContext, type: PgType | None = None) -> QueryPlan:
    """An expression that may name no column, cast to `type` if there is one, as a query of one row and column."""
    text = f"SELECT {expression.text}" if type is None else f"SELECT CAST(({expression.text}) AS {type})"
    query = parse_query(text)
    return plan_query(Query(query.tree, text, expression.offset - text.index(expression.text)), context)


def plan_default(definition: ColumnDefinition, context: PlanContext) -> str:
    """A column's DEFAULT as the catalog keeps it: SQL text. PgError if it cannot be assigned to the column."""
    assert definition.default is not None
    text = definition.default.text
    id = ObjectId("new")
    column = Column(definition.name.name, str(definition.type), default=text)
    state = context.state
    table = Table(id, next(iter(state.schemas)), "", (column,))
    state = replace(state, items={**state.items, id: table})
    plan_insert(default_values(table), replace(context, state=state))
    return text


def default_values(table: Table) -> Insert:
    """INSERT INTO table DEFAULT VALUES."""
    return Insert("", 0, Name((ID_SCHEMA, table.id), 0), None, (), None, ())


def plan_index_keys(statement: CreateIndex, item: Item, context: PlanContext) -> tuple[str, ...]:
    """The key expressions of an index over `item`, as SQL text; all columns where none is given. PgError 42703, ..."""
    if not statement.keys:
        return tuple(column.name for column in item.columns)
    for key in statement.keys:
        text = f"SELECT {key.text} FROM {quote_identifier(ID_SCHEMA)}.{quote_identifier(item.id)}"
        plan_query(Query(parse_query(text).tree, text, key.offset - len("SELECT ")), context)
    return tuple(key.text for key in statement.keys)


def plan_stored(query: str, state: CatalogState) -> QueryPlan:
    """A view's stored query: it names everything by id, so it needs no session."""
    return plan_query(parse_query(query), PlanContext(state, "", (), ""), maintained=True)


CHANGES = ObjectId("changes")


def plan_order(order: WithinTimestampOrderBy, relation: tuple[Field, ...], context: PlanContext) -> OrderPlan:
    """WITHIN TIMESTAMP ORDER BY over mz_diff, the relation's columns and expressions of them; 1 is mz_diff."""
    columns = (Column("mz_diff", "int8", False), *(Column(f.name, str(f.type), f.nullable) for f in relation))
    state = context.state
    table = Table(CHANGES, next(iter(state.schemas)), "", columns)
    query = relation_query(table)
    tree = query.tree.copy()
    tree.set("expressions", [exp.Star(), *(_sorted_by(term, len(columns), tree) for term in order.terms)])
    text, offset = order.terms[0].text, order.terms[0].offset
    planned = plan_query(
        Query(tree, text, offset),
        replace(context, state=replace(state, items={**state.items, CHANGES: table})),
        maintained=True,
    )
    for term, column in zip(order.terms, planned.columns[len(columns) :], strict=True):
        if column.type.name == "json":
            raise PgError(
                SqlState.UNDEFINED_FUNCTION,
                "could not identify an ordering operator for type json",
                hint="Use an explicit ordering operator or modify the query.",
                position=term.position,
            )
    keys = tuple(
        SortKey(bool(term.tree.args.get("desc")), bool(term.tree.args.get("nulls_first"))) for term in order.terms
    )
    return OrderPlan(planned, keys)


def _sorted_by(term: Expr, width: int, tree: exp.Expr) -> exp.Expr:
    """A term of ORDER BY as an expression: a number names the column in that place."""
    value: exp.Expr = term.tree.this
    if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdigit():
        return value.copy()
    number = int(value.this)
    if not 1 <= number <= width:
        message = f"ORDER BY position {number} is not in select list"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=term.position)
    column: exp.Expr = tree.expressions[number - 1]
    return column.copy()


def system_table_in(plan: QueryPlan, state: CatalogState) -> SystemTable | None:
    """A system table that the query reads, if there is one: those are no collections and cannot be kept up to date."""
    for id in plan.inputs:
        item = state.items[id]
        if isinstance(item, SystemTable):
            return item
    return None
