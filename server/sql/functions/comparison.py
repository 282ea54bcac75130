"""= <> < <= > >=, num_nulls and num_nonnulls (chapter 9.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from protocol.pgwire.types import NUMERIC_PRECISION_MAX, PgType
from server.sql.decimals import Shape
from server.sql.expressions import Expression
from server.sql.functions.table import (
    COMPARISONS,
    FUNCTIONS,
    INTEGERS,
    OPERATORS,
    Form,
    Nulls,
    fitted,
    independent,
    row,
    shape_of,
)


def _compare_numeric(symbol: str) -> Form:
    """Fixes a common scale: Spark widens to 38 digits by dropping decimals, so that 0.1 could equal 0.10000001."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        left, right = shape_of(args[0]), shape_of(args[1])
        scale = max(left.scale, right.scale)
        if max(left.whole, right.whole) + scale > NUMERIC_PRECISION_MAX and left != right:
            common = Shape(NUMERIC_PRECISION_MAX, scale)
            texts = [fitted(arg, text, common) for arg, text in zip(args, texts, strict=True)]
        return f"({texts[0]} {symbol} {texts[1]})"

    return form


def _by(key: Callable[[Any], Any], compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: compare(key(left), key(right))


def _float_key(value: float) -> tuple[bool, float]:
    """NaN is equal to itself and greater than all other values."""
    return (True, 0.0) if value != value else (False, value)


def _without_spaces(text: str) -> str:
    return text.rstrip(" ")


def _nulls(*values: Any, types: Sequence[PgType]) -> int:
    return sum(value is None for value in values)


def _not_nulls(*values: Any, types: Sequence[PgType]) -> int:
    return sum(value is not None for value in values)


for _symbol, _python in COMPARISONS.items():
    _form = f"({{0}} {_symbol} {{1}})"
    for _a, _b in product(INTEGERS, repeat=2):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form, python=_python)
    for _a, _b in product(("float4", "float8"), repeat=2):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form, python=_by(_float_key, _python))
    for _a in ("bool", "text", "bytea", "uuid", "inet", "macaddr", "macaddr8"):
        row(OPERATORS, _symbol, f"{_a} {_a}", "bool", _form, python=_python)
    row(OPERATORS, _symbol, "anyenum anyenum", "bool", _form, python=_python)  # of the positions
    row(OPERATORS, _symbol, "numeric numeric", "bool", _compare_numeric(_symbol), python=_python)
    row(OPERATORS, _symbol, "bpchar bpchar", "bool", f"(rtrim({{0}}) {_symbol} rtrim({{1}}))",
        python=_by(_without_spaces, _python))  # fmt: skip

row(FUNCTIONS, "num_nulls", "any", "int4", python=_nulls, nulls=Nulls.NEVER, variadic=True, typed=True,
    dimensions=independent)  # fmt: skip
row(FUNCTIONS, "num_nonnulls", "any", "int4", python=_not_nulls, nulls=Nulls.NEVER, variadic=True, typed=True,
    dimensions=independent)  # fmt: skip
