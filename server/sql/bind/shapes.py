"""What can be read off sqlglot's trees before anything is bound: names, brackets, rows."""

from __future__ import annotations

from sqlglot import exp


def function_name(call: exp.Anonymous) -> str:
    """What is called, folded as PostgreSQL folds it."""
    name = call.this
    return str(name.name) if isinstance(name, exp.Identifier) else str(name).lower()


def unparenthesised(tree: exp.Expr) -> exp.Expr:
    """What stands inside any number of brackets."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def row_of(tree: exp.Expr) -> list[exp.Expr] | None:
    """The fields of (a, b) or ROW(a, b); None if it is no row."""
    tree = unparenthesised(tree)
    if isinstance(tree, exp.Tuple) or (isinstance(tree, exp.Anonymous) and function_name(tree) == "row"):
        return list(tree.expressions)
    return None


def is_bare_name(tree: exp.Expr) -> bool:
    """Whether it is a column's name alone."""
    return isinstance(tree, exp.Column) and not tree.table and not isinstance(tree.this, exp.Star)


def is_named(tree: exp.Expr | None, name: str) -> bool:
    """Whether a relation of this name without a schema is named anywhere inside."""
    return tree is not None and any(t.name == name and not t.args.get("db") for t in tree.find_all(exp.Table))


def tables_of(tree: exp.Expr) -> list[exp.Expr]:
    """The items of FROM, joined ones too."""
    from_ = tree.args.get("from_")
    tables = [from_.this] if from_ is not None else []
    return tables + [join.this for join in tree.args.get("joins") or ()]


def real_names(tree: exp.Expr) -> dict[str, str]:
    """Of the tables in FROM: the relation's own name to the alias it was given."""
    names = {}
    for table in tables_of(tree):
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            names[table.name] = table.alias or table.name
        elif table.alias:
            names[table.alias] = table.alias
    return names
