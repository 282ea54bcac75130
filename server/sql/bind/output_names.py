"""Names of output columns without AS, by the rules of PostgreSQL (FigureColname in parse_target.c)."""

from __future__ import annotations

from enum import Enum, auto

from sqlglot import exp

from protocol.pgwire.types import named_type
from server.sql.bind.casts import type_spelling
from server.sql.bind.grammar import trim_name
from server.sql.bind.session import session_name
from server.sql.bind.shapes import function_name
from server.sql.grammar.json_constructors import JsonAggregate, JsonConstructor

_NAMELESS = "?column?"


class _Strength(Enum):
    """How well a name describes its expression. A cast or CASE takes the name of its operand only if it is STRONG."""

    NONE = auto()
    WEAK = auto()  # that of a type, or `case`
    STRONG = auto()  # that of a column or function


def output_name(tree: exp.Expr) -> str:
    """The name of an output column without AS."""
    return _named(tree)[0]


def _named(tree: exp.Expr) -> tuple[str, _Strength]:
    match tree:
        case exp.Column() if isinstance(tree.this, exp.Star):
            return tree.table, _Strength.STRONG
        case exp.Column() | exp.Identifier():
            return tree.name, _Strength.STRONG
        case exp.Tuple():
            return "row", _Strength.STRONG
        case JsonAggregate():
            return tree.args["written"], _Strength.STRONG
        case JsonConstructor():
            return f"json_{tree.this}", _Strength.STRONG
        case exp.Anonymous():
            return function_name(tree), _Strength.STRONG
        case exp.Dot():
            return _named(tree.expression)
        case exp.Filter() | exp.WithinGroup() | exp.Window() | exp.Paren() | exp.Bracket() | exp.Collate():
            return _named(tree.this)
        case exp.Cast():
            name, strength = _named(tree.this)
            return (name, strength) if strength is _Strength.STRONG else (_type_name(tree.args["to"]), _Strength.WEAK)
        case exp.Interval():
            return "interval", _Strength.WEAK
        case exp.Case():
            default = tree.args.get("default")
            name, strength = _named(default) if default is not None else (_NAMELESS, _Strength.NONE)
            return (name, strength) if strength is _Strength.STRONG else ("case", _Strength.WEAK)
        case exp.Array():
            return "array", _Strength.STRONG
        case exp.Exists():
            return "exists", _Strength.STRONG
        case exp.Subquery():
            return _first_output(tree)
        case exp.Extract():
            return "extract", _Strength.STRONG
        case exp.Substring():
            return "substring", _Strength.STRONG
        case exp.Overlay():
            return "overlay", _Strength.STRONG
        case exp.Is(expression=exp.Column(name="normalized")):
            return "is_normalized", _Strength.STRONG
        case exp.StrPosition():
            return "position", _Strength.STRONG
        case exp.Trim():
            return trim_name(tree), _Strength.STRONG
        case exp.AtTimeZone():
            return "timezone", _Strength.STRONG
        case exp.Overlaps():
            return "overlaps", _Strength.STRONG
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.Localtime() | exp.CurrentUser():
            return session_name(tree), _Strength.STRONG
        case exp.SessionUser() | exp.CurrentCatalog() | exp.CurrentSchema() | exp.CurrentRole():
            return session_name(tree), _Strength.STRONG
    return _NAMELESS, _Strength.NONE


def _first_output(query: exp.Expr) -> tuple[str, _Strength]:
    """The name of the first output column of a query; in a set operation, that of the leftmost query."""
    while isinstance(query, (exp.Subquery, exp.SetOperation)):
        query = query.this
    if isinstance(query, exp.Select) and query.expressions:
        first = query.expressions[0]
        source = query.args.get("from_")
        if isinstance(first, exp.Star) and source is not None and isinstance(source.this, exp.Values):
            return "column1", _Strength.STRONG  # VALUES with ORDER BY or LIMIT
        return (first.alias, _Strength.STRONG) if isinstance(first, exp.Alias) else _named(first)
    return ("column1", _Strength.STRONG) if isinstance(query, exp.Values) else (_NAMELESS, _Strength.NONE)


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
