"""Functions in FROM, and functions whose rows are expanded to columns, as DuckDB can execute them."""

from __future__ import annotations

from sqlglot import exp

from server.pg_catalog.annotations import COUNTS_FROM_0
from server.pg_catalog.trees import defined_function, helper, list_length
from server.pg_catalog.types import cast_to

_ENTRY = ("grantor", "grantee", "privilege_type", "is_grantable")
_COLUMNS = {"aclexplode": _ENTRY, "_pg_expandarray": ("x", "n")}
"""The columns of the functions that return rows."""


WITHOUT_ROWS = {
    "pg_options_to_table": {"option_name": "VARCHAR", "option_value": "VARCHAR"},
    "pg_partition_ancestors": {"relid": "UINTEGER"},
    "pg_partition_tree": {"relid": "UINTEGER", "parentrelid": "UINTEGER", "isleaf": "BOOLEAN", "level": "INTEGER"},
}
"""The functions whose rows are options of foreign tables or partitions, which do not exist, and their columns."""


def no_rows(name: str, table: exp.Table, alias: exp.TableAlias) -> exp.Expr:
    """A function in FROM that has no rows. A single column has the alias."""
    types = [*WITHOUT_ROWS[name].values(), "BIGINT"]
    names = [exp.to_identifier(column) for column in WITHOUT_ROWS[name]]
    if len(names) == 1:
        names = [alias.this]
    if table.args.get("ordinality"):
        names.append(exp.to_identifier("ordinality", quoted=True))
    given = alias.args.get("columns") or []
    names[: len(given)] = given
    columns = [exp.alias_(cast_to(exp.Null(), type), name.copy()) for name, type in zip(names, types, strict=False)]
    rows = exp.Select(expressions=columns).where(exp.false(), copy=False)
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=alias.this.copy()))


def single_row(value: exp.Expr, alias: exp.TableAlias) -> exp.Expr:
    """A function in FROM that returns one value: a lateral subquery whose column has the alias."""
    columns = alias.args.get("columns") or [alias.this]
    return exp.Subquery(this=exp.Select(expressions=[exp.alias_(value, columns[0].copy())]), alias=alias)


def exploded_acl(call: exp.Anonymous, alias: exp.TableAlias) -> exp.Expr:
    """aclexplode in FROM: a lateral subquery with a row for each privilege of each entry."""
    entry = exp.alias_(defined_function("aclexplode", *call.expressions), "tw_entry")
    columns: list[exp.Expr] = [exp.column(name, "tw_entry") for name in _ENTRY]
    rows = exp.Select(expressions=columns).from_(exp.Select(expressions=[entry]).subquery("tw_entries"), copy=False)
    return exp.Subquery(this=rows, alias=alias)


def expanded(item: exp.Expr) -> list[exp.Expr]:
    """An item of SELECT. For `(f(...)).*`, one for each column that the function returns, named like the column."""
    if not isinstance(item, exp.Dot):
        return [item]
    inner = item.this.unnest()
    called = inner.expression if isinstance(inner, exp.Dot) else inner
    columns = _COLUMNS.get(called.name.lower(), ()) if isinstance(called, exp.Anonymous) else ()
    names = columns if isinstance(item.expression, exp.Star) else [name for name in columns if name == item.name]
    rows = [exp.alias_(exp.Dot(this=item.this.copy(), expression=exp.to_identifier(name)), name) for name in names]
    return list(rows) or [item]


def unnest(node: exp.Unnest) -> exp.Expr:
    """In FROM. DuckDB's unnest takes one list: several become a lateral subquery with one column for each."""
    alias = node.args.get("alias")
    lists, names = node.expressions, [] if alias is None else list(alias.args.get("columns") or ())
    if alias is not None and len(lists) > 1 and len(names) == len(lists):
        if (ordinality := node.args.get("offset")) is not None:
            longest = exp.Greatest(this=list_length(lists[0]), expressions=[list_length(each) for each in lists[1:]])
            lists = [*lists, exp.Anonymous(this="generate_series", expressions=[exp.Literal.number(1), longest])]
            names.append(ordinality)
        columns = [
            exp.alias_(exp.Anonymous(this="unnest", expressions=[each.copy()]), name.copy())
            for each, name in zip(lists, names, strict=True)
        ]
        return exp.Subquery(this=exp.Select(expressions=columns), alias=exp.TableAlias(this=alias.this))
    if alias is not None and not alias.args.get("columns") and alias.this is not None:
        alias.set("columns", [alias.this.copy()])
    return node


def is_unnest(node: exp.Expr) -> bool:
    """Whether a node is a call of unnest() with any number of lists."""
    return isinstance(node, exp.Anonymous) and node.name == "unnest"


def unnested_subscripts(call: exp.Expr) -> exp.Anonymous:
    """generate_subscripts(array, dimension [, reverse]) as unnest() of a list of the subscripts."""
    first = exp.Literal.number(0 if call.meta.get(COUNTS_FROM_0) else 1)
    return exp.Anonymous(this="unnest", expressions=[helper("subscripts", first, *call.expressions)])
