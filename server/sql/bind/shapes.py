"""Properties of unbound sqlglot trees: names, parentheses, rows."""

from __future__ import annotations

from sqlglot import exp


def function_name(call: exp.Expr) -> str:
    """The called name, case-folded like in PostgreSQL."""
    name = call.this
    return str(name.name) if isinstance(name, exp.Identifier) else str(name).lower()


def unparenthesised(tree: exp.Expr) -> exp.Expr:
    """The tree without enclosing parentheses."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def row_of(tree: exp.Expr) -> list[exp.Expr] | None:
    """The fields of (a, b) or ROW(a, b); None for other trees."""
    tree = unparenthesised(tree)
    if isinstance(tree, exp.Tuple) or (isinstance(tree, exp.Anonymous) and function_name(tree) == "row"):
        return list(tree.expressions)
    return None


def is_bare_name(tree: exp.Expr) -> bool:
    """Whether it is an unqualified column name."""
    return isinstance(tree, exp.Column) and not tree.table and not isinstance(tree.this, exp.Star)


def is_named(tree: exp.Expr | None, name: str) -> bool:
    """Whether the tree contains a reference to a relation of this name without a schema."""
    return tree is not None and any(t.name == name and not t.args.get("db") for t in tree.find_all(exp.Table))


def tables_of(tree: exp.Expr) -> list[exp.Expr]:
    """The items of FROM, including joined ones."""
    from_ = tree.args.get("from_")
    tables = [from_.this] if from_ is not None else []
    return tables + [join.this for join in tree.args.get("joins") or ()]


def real_names(tree: exp.Expr) -> dict[str, str]:
    """For the tables in FROM: the relation's own name to its alias."""
    names = {}
    for table in tables_of(tree):
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            names[table.name] = table.alias or table.name
        elif table.alias:
            names[table.alias] = table.alias
    return names
