"""Names of output columns without AS."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.types import named_type
from server.sql.bind.casts import type_spelling
from server.sql.bind.grammar import trim_name
from server.sql.bind.session import session_name
from server.sql.bind.shapes import function_name

_NAMELESS = "?column?"


def output_name(tree: exp.Expr) -> str:
    """PostgreSQL's name for an output column without AS (FigureColname)."""
    return _figured(tree)[0]


def _figured(tree: exp.Expr) -> tuple[str, int]:
    """A name and its strength: 0 none, 1 from a type or CASE, 2 a real name."""
    match tree:
        case exp.Column() if isinstance(tree.this, exp.Star):
            return tree.table, 2
        case exp.Column() | exp.Identifier():
            return tree.name, 2
        case exp.Tuple():
            return "row", 2
        case exp.Anonymous():
            return function_name(tree), 2
        case exp.Dot():
            return _figured(tree.expression)
        case exp.Filter() | exp.WithinGroup() | exp.Window() | exp.Paren() | exp.Bracket() | exp.Collate():
            return _figured(tree.this)
        case exp.Cast():
            name, worth = _figured(tree.this)
            return (name, worth) if worth == 2 else (_type_name(tree.args["to"]), 1)
        case exp.Interval():
            return "interval", 1
        case exp.Case():
            default = tree.args.get("default")
            name, worth = _figured(default) if default is not None else (_NAMELESS, 0)
            return (name, worth) if worth == 2 else ("case", 1)
        case exp.Array():
            return "array", 2
        case exp.Exists():
            return "exists", 2
        case exp.Subquery():
            inner: exp.Expr = tree
            while isinstance(inner, (exp.Subquery, exp.SetOperation)):
                inner = inner.this
            if isinstance(inner, exp.Select) and inner.expressions:
                first = inner.expressions[0]
                return (first.alias, 2) if isinstance(first, exp.Alias) else _figured(first)
            return ("column1", 2) if isinstance(inner, exp.Values) else (_NAMELESS, 0)
        case exp.Extract():
            return "extract", 2
        case exp.Substring():
            return "substring", 2
        case exp.Overlay():
            return "overlay", 2
        case exp.Is(expression=exp.Column(name="normalized")):
            return "is_normalized", 2
        case exp.StrPosition():
            return "position", 2
        case exp.Trim():
            return trim_name(tree), 2
        case exp.AtTimeZone():
            return "timezone", 2
        case exp.Overlaps():
            return "overlaps", 2
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.Localtime() | exp.CurrentUser():
            return session_name(tree), 2
        case exp.SessionUser() | exp.CurrentCatalog() | exp.CurrentSchema() | exp.CurrentRole():
            return session_name(tree), 2
    return _NAMELESS, 0


def _type_name(tree: exp.Expr) -> str:
    spelling = type_spelling(tree).removesuffix("[]")
    if isinstance(tree, exp.DataType) and tree.this == exp.DType.ARRAY and tree.expressions:
        return _type_name(tree.expressions[0])
    if isinstance(tree, exp.DataType) and isinstance(kind := tree.args.get("kind"), exp.Expr):
        return str(kind.meta.get("parts", (spelling,))[-1])
    try:
        return named_type(spelling).name
    except ValueError:
        return spelling.partition("(")[0]
