"""Expressions over system catalogs in queries and writes that use the relations of users.

`pg_relation_size('t')`, `'t'::regclass` and the like have one value per statement if no column is in them. The catalog
engine computes it before the statement runs, and the statement has a parameter in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import CHAR, INT8, NAME, OID, TEXT, VARCHAR, PgType, array_of
from server.execution.catalog_query.query import is_catalog_node, plan_catalog_query, run_catalog_query
from server.pg_catalog.registered_values import is_shown
from server.pg_catalog.types import REGISTERED, type_name
from server.session_state.context import Context
from server.session_state.prepared import CatalogPlan, ValuesPlan
from server.session_state.results import TableRows
from server.sql.bind.output_names import output_name
from server.sql.bind.volatile import NAMES as VOLATILE_NAMES
from server.sql.constant import PRIVILEGE_FUNCTIONS
from server.sql.functions.worker import scalar_values
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Query
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import QueryPlan
from server.sql.writes.plan import WritePlan

Planned = Select | Insert | Update | Delete | Merge
Types = Sequence[PgType | None]
Found = TypeVar("Found")

_COMPUTED_AS = {OID: INT8, NAME: TEXT, CHAR: TEXT, VARCHAR: TEXT}
"""The types with which other expressions compute with values of the catalog's types."""


def plan_with_values(
    context: Context, statement: Planned, types: Types, plan: Callable[[Planned, Types], QueryPlan | WritePlan]
) -> ValuesPlan | None:
    """Plans a statement with parameters in place of its expressions over system catalogs; None if it has none.

    `plan` plans the statement. PgError.
    """
    numbers = [number for tree in _trees(statement) for number in _parameters(tree)]
    first = max((*numbers, len(types))) + 1 if numbers or types else 1
    taken = _Taken(first)
    changed = taken.of(statement)
    if not taken.values:
        return None
    query = exp.Select(expressions=taken.values)
    values = plan_catalog_query(context, Select(statement.text, statement.offset, Query(query, "", 0)), types)
    declared = [*types, *[None] * (first - 1 - len(types))]
    for number in _parameters(query):
        declared[number - 1] = declared[number - 1] or values.parameters[number - 1]
    inner = plan(changed, [*declared, *(computed_as(field.type) for field in values.columns)])
    return ValuesPlan(inner, values)


async def values_of(context: Context, plan: CatalogPlan, parameters: tuple[object, ...]) -> tuple[object, ...]:
    """The values of the expressions over system catalogs. PgError."""
    result = await run_catalog_query(context, plan, parameters)
    assert isinstance(result.rows, TableRows)
    table = await result.rows.take(None)
    types = [computed_as(field.type) for field in plan.columns]
    columns = zip(types, table.columns, strict=True)
    return tuple(scalar_values(type, column.cast(type.arrow))[0] for type, column in columns)


def computed_as(type: PgType) -> PgType:
    """The type with which other expressions compute with values of a type that only the catalog engine has."""
    if type.element is not None:
        return array_of(computed_as(type.element))
    return _COMPUTED_AS.get(type, type)


class _Taken:
    """Replaces the expressions of a statement by the parameters with the numbers from `first`. `values`: of these."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.values: list[exp.Expr] = []

    def of(self, part: Found) -> Found:
        """A statement, or a part of one, with parameters."""
        changed: Any = part
        match part:
            case Query() | Expr():
                changed = replace(part, tree=self._in(part.tree, is_item=False))
            case tuple():
                changed = tuple(map(self.of, part))
            case _ if is_dataclass(part) and not isinstance(part, type):
                found = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
                for name, value in found.items():
                    items = value if name == "returning" else ()
                    found[name] = tuple(replace(item, tree=self._in(item.tree, is_item=True)) for item in items)
                    found[name] = found[name] or self.of(value)
                changed = replace(part, **found)
        return changed  # type: ignore[no-any-return]

    def _in(self, tree: exp.Expr, *, is_item: bool) -> exp.Expr:
        """The tree with parameters. `is_item`: it is an item of RETURNING."""
        if not any(map(is_catalog_node, tree.walk())):
            return tree
        root = exp.Select(expressions=[tree.copy()]) if is_item else exp.Paren(this=tree.copy())
        found: list[exp.Expr] = []

        def ends_at(node: exp.Expr) -> bool:
            """Whether the nodes in this one are not visited."""
            called = node.expression if isinstance(node, exp.Dot) else node
            if isinstance(called, exp.Anonymous) and called.name.lower() in VOLATILE_NAMES:
                return True  # as in nextval('s'::regclass)
            if not _is_computed(called) or not _is_constant(node):
                return False
            found.append(node)
            return True

        for _ in root.walk(prune=ends_at):
            pass
        for node in found:
            node.replace(self._parameter(node))
        inner: exp.Expr = root.expressions[0] if is_item else root.this
        inner.pop()
        return inner

    def _parameter(self, node: exp.Expr) -> exp.Expr:
        value: exp.Expr = node.copy()
        is_item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        called = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        is_registered = isinstance(node, exp.Cast) and type_name(node.to) in REGISTERED
        if (is_registered or called.startswith("to_reg")) and not (is_item or is_shown(node)):
            value = exp.Cast(this=value, to=exp.DataType(this=exp.DType.USERDEFINED, kind=exp.to_identifier("oid")))
        if value not in self.values:
            self.values.append(value)
        parameter = exp.Parameter(this=exp.Literal.number(self._first + self.values.index(value)))
        return exp.alias_(parameter, output_name(node), quoted=True) if is_item else parameter


def _is_computed(node: exp.Expr) -> bool:
    """Whether the catalog engine computes an expression, if it is constant."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in PRIVILEGE_FUNCTIONS:
        return any(map(is_catalog_node, node.walk()))
    return is_catalog_node(node)


def _is_constant(tree: exp.Expr) -> bool:
    """Whether an expression has no column, no subquery and no volatile call in it."""
    for node in tree.walk():
        if isinstance(node, exp.Column | exp.Star | exp.Query):
            return False
        if isinstance(node, exp.Anonymous) and node.name.lower() in VOLATILE_NAMES:
            return False
    return True


def _trees(part: object) -> list[exp.Expr]:
    """The syntax trees of a statement, or of a part of one."""
    if isinstance(part, Query | Expr):
        return [part.tree]
    if isinstance(part, tuple):
        return [tree for item in part for tree in _trees(item)]
    if is_dataclass(part) and not isinstance(part, type):
        return [tree for field in fields(part) for tree in _trees(getattr(part, field.name))]
    return []


def _parameters(tree: exp.Expr) -> set[int]:
    """The numbers of the parameters."""
    return {int(parameter.this.name) for parameter in tree.find_all(exp.Parameter)}


def is_refusal(error: PgError) -> bool:
    """Whether the error can be that of the planner for an expression that the catalog engine computes."""
    return error.sqlstate in (SqlState.UNDEFINED_FUNCTION, SqlState.FEATURE_NOT_SUPPORTED, SqlState.UNDEFINED_OBJECT)
