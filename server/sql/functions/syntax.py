"""What has a syntax of its own and is no row of the table: AND, IS NULL, COALESCE, ..."""

from __future__ import annotations

from protocol.pgwire.types import BOOL
from server.sql.functions.table import (
    Function,
    Nulls,
    types_of,
)


def _syntax(name: str, spark: str, nulls: Nulls = Nulls.STRICT, arguments: str = "any any") -> Function:
    return Function(name, types_of(arguments), BOOL, spark, nulls=nulls)


AND = _syntax("AND", "({*:AND})")
OR = _syntax("OR", "({*:OR})")
NOT = _syntax("NOT", "(NOT {0})")
IS_NULL = _syntax("IS NULL", "({0} IS NULL)", Nulls.NEVER)
IS_NOT_NULL = _syntax("IS NOT NULL", "({0} IS NOT NULL)", Nulls.NEVER)
IS_TRUE = _syntax("IS TRUE", "({0} IS TRUE)", Nulls.NEVER)
IS_FALSE = _syntax("IS FALSE", "({0} IS FALSE)", Nulls.NEVER)
IS_DISTINCT = _syntax("IS DISTINCT FROM", "(NOT ({0} <=> {1}))", Nulls.NEVER)
COALESCE = _syntax("coalesce", "coalesce({*})", Nulls.MAYBE)
GREATEST = _syntax("greatest", "greatest({*})", Nulls.MAYBE)
LEAST = _syntax("least", "least({*})", Nulls.MAYBE)
SUBSCRIPT = _syntax("subscript", "get({0}, {1} - 1)", Nulls.MAYBE)
