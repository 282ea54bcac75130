"""One bound item of FROM: its relation and its column names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.bind.binder import Binder
from server.sql.expressions import ColumnRef
from server.sql.relations import RecursiveRows, Relation
from server.sql.scope import Entry


@dataclass(slots=True)
class FromItem:
    """`lateral`: the item may reference columns of items to its left."""

    relation: Relation
    entries: list[Entry]
    lateral: bool = False


def aliased(binder: Binder, relation: Relation, tree: exp.Expr, default: str) -> list[Entry]:
    """The columns, named by the alias."""
    alias = tree.alias or default
    names = column_aliases(tree)
    check_width(binder, relation, "table", alias, names, tree)
    shown = names + [column.name for column in relation.columns[len(names) :]]
    listed = len(shown) - (relation.unlisted if isinstance(relation, RecursiveRows) else 0)
    return [
        Entry(name, ColumnRef(column), alias or None, is_listed=number < listed)
        for number, (name, column) in enumerate(zip(shown, relation.columns, strict=True))
    ]


def check_width(
    binder: Binder, relation: Relation, what: str, table: str, names: Sequence[str], tree: exp.Expr
) -> None:
    """42P10 if the alias names more columns than the relation has."""
    if len(names) > len(relation.columns):
        raise PgError(
            SqlState.INVALID_COLUMN_REFERENCE,
            f'{what} "{table}" has {len(relation.columns)} columns available but {len(names)} columns specified',
            position=binder.at(tree),
        )


def alias_columns(tree: exp.Expr) -> list[exp.Expr]:
    """The column list of an alias."""
    alias = tree.args.get("alias")
    return list(alias.args.get("columns") or ()) if alias is not None else []


def column_aliases(tree: exp.Expr) -> list[str]:
    """The column names of an alias."""
    return [column.name for column in alias_columns(tree)]
