"""SELECT ... FOR UPDATE and its weaker forms: the tables whose rows the query locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.bind.from_item import FromItem
from server.sql.expressions import (
    Call,
    Column,
    ColumnRef,
    Expression,
    Subquery,
    SubqueryKind,
    WindowCall,
    contains,
    walk,
)
from server.sql.functions.table import OPERATORS
from server.sql.relations import Relation, RowLocks, Scan


def row_locks(binder: Binder, tree: exp.Select, source: FromItem) -> RowLocks:
    """The rows that the clauses of a SELECT lock, and those of the statement's other SELECTs that are bound already.

    PgError 0A000, or 42P01 for an unknown name after OF.
    """
    clauses: list[exp.Lock] = tree.args["locks"]
    if isinstance(tree.parent, exp.SetOperation):
        raise _not_allowed(clauses[0], "UNION/INTERSECT/EXCEPT")
    if binder.maintained:
        raise binder.unsupported(
            f"{lock_name(clauses[0])} in a maintained query",
            tree,
            hint="Omit the clause: a query that is kept up to date locks no rows.",
        )
    waits = [clause.args.get("wait") for clause in clauses]
    if any(isinstance(wait, exp.Expr) for wait in waits):
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near "WAIT"')
    tables = frozenset(id for clause in clauses for id in _tables(binder, clause, source))
    nowait, skips = True in waits, False in waits
    key = locked_key(binder, tables, source) if skips and not nowait else None
    found = RowLocks(tables, nowait, skips, None if key is None else key[0])
    if (other := binder.row_locks) in (None, found):  # a WITH query is bound several times
        return found
    return RowLocks(other.tables | tables, other.nowait or nowait, other.skips or skips)


def locked_key(binder: Binder, tables: Iterable[ObjectId], source: FromItem) -> tuple[int, Column] | None:
    """The number and the column of the primary key of the only table that a SELECT locks.

    None for several tables, if the SELECT reads the table more than once, and if the key is not enforced, or has
    several columns.
    """
    scans = scans_of(binder, source.relation, tables)
    if len(set(tables)) != 1 or len(scans) != 1:
        return None
    item = binder.context.state.items[scans[0].id]
    if not isinstance(item, Table):
        return None
    number = item.primary_key_column
    if number is None or scans[0].columns[number] not in source.relation.columns:
        return None
    return number, scans[0].columns[number]


def scans_of(binder: Binder, relation: Relation, tables: Iterable[ObjectId]) -> list[Scan]:
    """The scans of these tables, and of views that read them, which an index may have."""
    state, wanted = binder.context.state, frozenset(tables)
    return [node for node in walk(relation) if isinstance(node, Scan) and wanted & state.collections((node.id,))]


def is_chosen(condition: Expression, key: ColumnRef, locked: Set[int]) -> bool:
    """Whether a condition limits a primary key to those of the rows that a SELECT with SKIP LOCKED returns.

    `locked`: `Binder.locked_keys`.
    """
    match condition:
        case Call(function=function, arguments=(left, right)) if function in OPERATORS["="]:
            return (left == key and _is_locked(right, locked)) or (right == key and _is_locked(left, locked))
        case Subquery(kind=SubqueryKind.IN, operands=(operand,), relation=relation):
            return operand == key and relation.columns[0].id in locked
    return False


def _is_locked(expression: Expression, locked: Set[int]) -> bool:
    match expression:
        case ColumnRef(column=column):
            return column.id in locked
        case Subquery(kind=SubqueryKind.SCALAR, relation=relation):
            return relation.columns[0].id in locked
    return False


def check_row_locks(tree: exp.Select, expressions: Sequence[Expression], *, aggregated: bool, expanded: bool) -> None:
    """PgError 0A000 if a query that locks rows has output rows that do not each belong to rows of its tables."""
    clause = tree.args["locks"][0]
    for words, argument in (("DISTINCT", "distinct"), ("GROUP BY", "group"), ("HAVING", "having")):
        if tree.args.get(argument):
            raise _not_allowed(clause, f"{words} clause")
    if aggregated:
        raise _not_allowed(clause, "aggregate functions")
    if any(contains(expression, WindowCall) for expression in expressions):
        raise _not_allowed(clause, "window functions")
    if expanded:
        raise _not_allowed(clause, "set-returning functions in the target list")


def _tables(binder: Binder, clause: exp.Lock, source: FromItem) -> Iterator[ObjectId]:
    """The tables of one clause: those that it names, or all of the FROM clause, also in its subqueries and views."""
    named = clause.args.get("expressions")
    for table in named or ():
        columns = {
            entry.expression.column.id
            for entry in source.entries
            if entry.table == table.name and isinstance(entry.expression, ColumnRef)
        }
        if not any(entry.table == table.name for entry in source.entries):
            message = f'relation "{table.name}" in {lock_name(clause)} clause not found in FROM clause'
            raise PgError(SqlState.UNDEFINED_TABLE, message)
        lowest = source.relation
        for node in walk(source.relation):
            if isinstance(node, Relation) and columns <= {column.id for column in node.columns}:
                lowest = node
        yield from _tables_of(binder, lowest)  # a scan, or the query of a view
    if not named:
        yield from _tables_of(binder, source.relation)


def _tables_of(binder: Binder, relation: Relation) -> Iterator[ObjectId]:
    """The tables of a relation. Views that an index may have are scanned as they are."""
    state = binder.context.state
    for node in walk(relation):
        if isinstance(node, Scan):
            yield from (id for id in state.collections((node.id,)) if isinstance(state.items.get(id), Table))


def lock_name(clause: exp.Lock) -> str:
    """The words of a clause."""
    match bool(clause.args.get("update")), bool(clause.args.get("key")):
        case True, False:
            return "FOR UPDATE"
        case True, True:
            return "FOR NO KEY UPDATE"
        case False, False:
            return "FOR SHARE"
        case _:
            return "FOR KEY SHARE"


def _not_allowed(clause: exp.Lock, what: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{lock_name(clause)} is not allowed with {what}")
