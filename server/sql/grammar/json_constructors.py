"""JSON_OBJECT, JSON_ARRAY, JSON_OBJECTAGG and JSON_ARRAYAGG with the clauses of the SQL standard.

They are constructed with sqlglot's parser, which calls these functions after the name and the opening parenthesis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from protocol.pgwire.errors import PgError, SqlState

_JSON_TYPES = {exp.DType.JSON: "json", exp.DType.JSONB: "jsonb"}
_QUERY = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES)


class JsonConstructor(exp.Expression):
    """JSON_OBJECT or JSON_ARRAY. `this`: "object" or "array". `expressions`: keys and values in turn, or elements.

    `query`: of JSON_ARRAY(query), which has no expressions. `absent`: without NULL values. `returned`: json or jsonb,
    as RETURNING says; None without it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": False,
        "query": False,
        "absent": True,
        "unique": True,
        "returned": False,
    }


class JsonFormat(exp.Expression):
    """value FORMAT JSON"""


class JsonAggregate(exp.Anonymous):
    """JSON_OBJECTAGG or JSON_ARRAYAGG as a call of the aggregate of json with the same result.

    `written`: the name, folded. `returned`: as in `JsonConstructor`.
    """

    arg_types: ClassVar[dict[str, bool]] = {**exp.Anonymous.arg_types, "written": True, "returned": False}


def _object(parser: Any) -> exp.Expr:
    if _has_no_arguments(parser):
        return _constructor(parser, "object", [], absent=False)
    key = parser._parse_assignment()
    if not _is_pair(parser):  # json_object(array), json_object(keys, values)
        others = parser._parse_csv(parser._parse_assignment) if parser._match(TokenType.COMMA) else []
        return cast(exp.Expr, parser.expression(exp.Anonymous(this="json_object", expressions=[key, *others])))
    members = [key, _value(parser)]
    while parser._match(TokenType.COMMA):
        key = parser._parse_assignment()
        if not _is_pair(parser):
            parser.raise_error("expected a colon or VALUE")
        members += [key, _value(parser)]
    return _constructor(parser, "object", members, absent=_absent(parser, False), unique=_unique(parser))


def _array(parser: Any) -> exp.Expr:
    if parser._curr and parser._curr.token_type in _QUERY:
        query = parser._parse_query_modifiers(parser._parse_set_operations(parser._parse_select()))
        return _constructor(parser, "array", [], absent=True, query=query)
    if _has_no_arguments(parser):
        return _constructor(parser, "array", [], absent=True)
    values = parser._parse_csv(lambda: _value(parser))
    return _constructor(parser, "array", values, absent=_absent(parser, True))


def _constructor(
    parser: Any, kind: str, expressions: list[exp.Expr], *, absent: bool, unique: bool = False, query: Any = None
) -> exp.Expr:
    type = _returned(parser)
    returned = None if type is None else _JSON_TYPES.get(type.this, "json")
    made = JsonConstructor(
        this=kind, expressions=expressions, query=query, absent=absent, unique=unique, returned=returned
    )
    tree = parser.expression(made)
    is_json = type is None or type.this in _JSON_TYPES
    return cast(exp.Expr, tree if is_json else parser.expression(exp.Cast(this=tree, to=type)))


def _object_aggregate(parser: Any) -> exp.Expr:
    key = parser._parse_assignment()
    if not _is_pair(parser):
        parser.raise_error("expected a colon or VALUE")
    arguments = [key, _value(parser)]
    is_strict, is_unique = _absent(parser, False), _unique(parser)
    suffix = f"object_agg{'_unique' * is_unique}{'_strict' * is_strict}"
    return _aggregate(parser, "json_objectagg", suffix, arguments)


def _array_aggregate(parser: Any) -> exp.Expr:
    value = _value(parser)
    order = parser._parse_order(this=value)
    return _aggregate(parser, "json_arrayagg", f"agg{'_strict' * _absent(parser, True)}", [order])


def _aggregate(parser: Any, written: str, suffix: str, arguments: list[exp.Expr]) -> exp.Expr:
    type = _returned(parser)
    if type is not None and type.this not in _JSON_TYPES:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{written.upper()} with RETURNING of a type other than json and jsonb is not supported",
            hint=f"Cast its result instead: {written}(...)::text.",
        )
    returned = None if type is None else _JSON_TYPES[type.this]
    call = JsonAggregate(this=f"json_{suffix}", expressions=arguments, written=written, returned=returned)
    return cast(exp.Expr, parser.expression(call))


def _has_no_arguments(parser: Any) -> bool:
    return bool(parser._match(TokenType.R_PAREN, advance=False) or parser._match_text_seq("RETURNING", advance=False))


def _is_pair(parser: Any) -> bool:
    """Whether the value of a key follows."""
    return bool(parser._match(TokenType.COLON) or parser._match_text_seq("VALUE"))


def _value(parser: Any) -> exp.Expr:
    """value [FORMAT JSON]"""
    value = parser._parse_assignment()
    if value is None:
        parser.raise_error("expected a value")
    if parser._match_text_seq("FORMAT", "JSON"):
        return cast(exp.Expr, parser.expression(JsonFormat(this=value)))
    return cast(exp.Expr, value)


def _absent(parser: Any, default: bool) -> bool:
    """[NULL | ABSENT] ON NULL"""
    if parser._match_text_seq("ABSENT", "ON", "NULL"):
        return True
    return False if parser._match_text_seq("NULL", "ON", "NULL") else default


def _unique(parser: Any) -> bool:
    """[WITH | WITHOUT] UNIQUE [KEYS]"""
    is_unique = bool(parser._match_text_seq("WITH", "UNIQUE"))
    if is_unique or parser._match_text_seq("WITHOUT", "UNIQUE"):
        parser._match_text_seq("KEYS")
    return is_unique


def _returned(parser: Any) -> exp.DataType | None:
    """[RETURNING type]"""
    return parser._parse_types() if parser._match_text_seq("RETURNING") else None


PARSERS: dict[str, Callable[[Any], exp.Expr]] = {
    "JSON_OBJECT": _object,
    "JSON_ARRAY": _array,
    "JSON_OBJECTAGG": _object_aggregate,
    "JSON_ARRAYAGG": _array_aggregate,
}
"""The parsers by the name of the function."""
