"""= <> < <= > >= (chapter 9.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from protocol.pgwire.types import NUMERIC_PRECISION_MAX
from server.sql.decimals import Shape
from server.sql.expressions import Expression
from server.sql.functions.table import (
    INTEGERS,
    OPERATORS,
    Form,
    fitted,
    row,
    shape_of,
)

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def _compare_numeric(symbol: str) -> Form:
    """Spark widens to 38 digits at the cost of decimals, so that 0.1 could equal 0.10000001: fix the scale first."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        left, right = shape_of(args[0]), shape_of(args[1])
        scale = max(left.scale, right.scale)
        if max(left.whole, right.whole) + scale > NUMERIC_PRECISION_MAX and left != right:
            common = Shape(NUMERIC_PRECISION_MAX, scale)
            texts = [fitted(arg, text, common) for arg, text in zip(args, texts, strict=True)]
        return f"({texts[0]} {symbol} {texts[1]})"

    return form


for _symbol in _COMPARISONS:
    _form = f"({{0}} {_symbol} {{1}})"
    for _a, _b in product(INTEGERS, repeat=2):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form)
    for _a, _b in product(("float4", "float8"), repeat=2):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form)
    for _a, _b in product(("date", "timestamp", "timestamptz"), repeat=2):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form, zoned=(_a == "timestamptz") != (_b == "timestamptz"))
    for _a in ("bool", "text", "bytea", "time", "uuid"):
        row(OPERATORS, _symbol, f"{_a} {_a}", "bool", _form)
    row(OPERATORS, _symbol, "numeric numeric", "bool", _compare_numeric(_symbol))
    row(OPERATORS, _symbol, "bpchar bpchar", "bool", f"(rtrim({{0}}) {_symbol} rtrim({{1}}))")
    for _a in ("interval", "jsonb"):
        row(OPERATORS, _symbol, f"{_a} {_a}", "bool", None)
    row(OPERATORS, _symbol, "anyarray anyarray", "bool", _form if _symbol in ("=", "<>") else None)
