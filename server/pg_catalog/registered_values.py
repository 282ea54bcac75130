"""Values of registered types (`regclass` etc.): OIDs, or names where the context needs text."""

from __future__ import annotations

from sqlglot import exp

from server.pg_catalog.annotations import IS_TEXT, TEXT_TYPES
from server.pg_catalog.trees import helper
from server.pg_catalog.types import cast_to, type_name
from server.sql.grammar.lexer import words

_TEXT_CALLS = words("concat concat_ws string_agg array_agg array_to_string quote_ident format")


def is_shown(cast: exp.Expr) -> bool:
    """Returns whether the context of a cast to a registered type needs the object's name rather than its OID."""
    node, parent = cast, cast.parent
    while isinstance(parent, exp.Paren | exp.Alias | exp.Order | exp.Ordered | exp.Case | exp.If) or (
        isinstance(parent, exp.Anonymous) and parent.name.lower() == "coalesce"
    ):
        if isinstance(parent, exp.Case | exp.If) and node.arg_key == "this":
            return False  # it is compared
        node, parent = parent, parent.parent
    match parent:
        case exp.Cast():
            return type_name(parent.to) in ("text", "varchar", "name", "bpchar")
        case exp.Select() | exp.DPipe() | exp.Distinct():
            return True
        case exp.Anonymous():
            return parent.name.lower() in _TEXT_CALLS
        case _:
            return False


def registered_value(kind: str, oid: int, place: exp.Expr) -> exp.Expr:
    """Returns the object with an OID as the context of the node `place` needs it: its name, or the OID."""
    number = cast_to(exp.Literal.number(oid), "UINTEGER")
    return helper(f"{kind}_text", number) if is_shown(place) else number


def as_regclass(argument: exp.Expr, *, is_text: bool) -> exp.Expr:
    """Casts a string literal (also one cast to text), a parameter or a text to regclass; returns other arguments."""
    inner = argument
    if isinstance(inner, exp.Cast) and type_name(inner.to) in TEXT_TYPES:
        inner = inner.this
    if is_text or isinstance(inner, exp.Parameter) or (isinstance(inner, exp.Literal) and inner.is_string):
        cast = exp.Cast(this=inner.copy(), to=exp.DataType(this=exp.DType.USERDEFINED, kind="regclass"))
        cast.meta[IS_TEXT] = is_text
        return cast
    return argument
