"""Exact sums of floats, as Spark SQL.

A finite float x is split into four integers, its *limbs*, which are digits with 30 bits of a large integer:

    x = (limb0 + limb1 * 2**30 + limb2 * 2**60 + limb3 * 2**90) * 2**(60 * bucket - 78)

The *bucket* follows from the size of x; values between 2**-20 and 2**40 have the bucket 0. The sums of the limbs of the
values of one bucket are exact integers, which are maintained by adding. `rounded_sum` adds the sums of all buckets and
rounds the result once, half to even. So the result does not depend on the order of the values.

NaN, the infinities and -0.0 have buckets of their own, and limbs of zero. NULL has no bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import SqlState
from server.sql.functions.table import fail

LIMBS = 4
_BITS = 30
_WIDTH = 2  # the distance of two buckets in limbs
_UNIT = 78  # the unit of the limbs of bucket 0 is 2**-78
_BASE = 1 << _BITS
_HALF = _BASE >> 1
_LEAST = -17  # the unit of its limbs, 2**-1098, divides all floats
_MINUS_ZERO, _INFINITY, _MINUS_INFINITY, _NAN = 100, 101, 102, 103  # all other buckets are smaller
_INFINITE = "CAST('Infinity' AS DOUBLE)"
MIDDLE = (0, 1, -1)  # the buckets of values between 2**-80 and 2**100 in size


def bucket(x: str) -> str:
    """The bucket of a DOUBLE, an INT.

    A logarithm is inexact: a float next to the limit of two buckets may have either one. The limbs have room for both.
    """
    return (
        f"CASE WHEN abs({x}) >= {2.0**-20!r}D AND abs({x}) < {2.0**40!r}D THEN 0"
        f" WHEN {x} = 0D THEN IF(CAST({x} AS STRING) = '-0.0', {_MINUS_ZERO}, 0) WHEN isnan({x}) THEN {_NAN}"
        f" WHEN {x} = {_INFINITE} THEN {_INFINITY} WHEN {x} = -{_INFINITE} THEN {_MINUS_INFINITY} WHEN {x} IS NOT NULL"
        f" THEN greatest(CAST(floor((log2(abs({x})) + 20D) / {_WIDTH * _BITS}D) AS INT), {_LEAST}) END"
    )


def scaled(x: str, bucket: str) -> str:
    """A DOUBLE that is not NULL: x * 2**(-12 - 60 * bucket), or zero if x is not finite. Less than 2**29 in size."""
    of_zero = _UNIT - (LIMBS - 1) * _BITS
    exponent = f"{of_zero} - {_WIDTH * _BITS} * {bucket}"
    return (
        f"CASE WHEN {bucket} = 0 THEN {x} * {2.0**of_zero!r}D"
        f" WHEN {bucket} < {_MINUS_ZERO} THEN {x} * pow(2D, CAST({exponent} AS DOUBLE)) ELSE 0D END"
    )


def limb(number: int, scaled: str) -> str:
    """A limb of a `scaled` value, an INT less than 2**30 in size. No operation in it rounds."""
    for _ in range(number, LIMBS - 1):
        scaled = f"({scaled} - CAST({scaled} AS INT)) * {_BASE}D"
    return f"CAST({scaled} AS INT)"


def sums_of_values(x: str, distinct: str, clauses: str) -> str:
    """An aggregate over rows with the DOUBLE `x`: the array that `rounded_sum` needs."""
    bucket_of_x = bucket("x")
    limbs = ", ".join(f"CAST({limb(i, 'z.z')} AS BIGINT) AS s{i}" for i in range(LIMBS))
    split = _let(f"struct(b.x AS x, b.b AS b, {scaled('b.x', 'b.b')} AS z)", "z", f"struct(z.b AS b, {limbs})")
    value = _let(x, "x", f"IF(x IS NULL, NULL, {_let(f'struct(x AS x, {bucket_of_x} AS b)', 'b', split)})")
    zeros = ", ".join(f"0L AS s{i}" for i in range(LIMBS))
    added = ", ".join(f"t.s{i} + e.s{i} AS s{i}" for i in range(LIMBS))
    of_bucket = f"aggregate(a, struct(b AS b, {zeros}), (t, e) -> IF(e.b = b, struct(b AS b, {added}), t))"
    by_bucket = f"transform(array_distinct(transform(a, e -> e.b)), b -> {of_bucket})"
    return _let(f"collect_list({distinct}{value}){clauses}", "a", by_bucket)


def sum_of_buckets(bucket: str, limbs: tuple[str, ...], clauses: str, type: str) -> str:
    """An aggregate over few rows for each group, with a bucket and sums of limbs (BIGINT): the sum of all values."""
    row = f"IF({bucket} IS NULL, NULL, {_row(bucket, limbs)})"
    return rounded_sum(f"collect_list({row}){clauses}", type)


def sum_of_limbs(bucket: str, limbs: tuple[str, ...], clauses: str, type: str) -> str:
    """An aggregate over any number of rows with a bucket and limbs (BIGINT): the sum of all values.

    The limbs of the middle buckets are added; those of other buckets are collected.
    """
    is_other = f"{bucket} NOT BETWEEN {min(MIDDLE)} AND {max(MIDDLE)}"
    others = f"collect_list(IF({is_other}, {_row(bucket, limbs)}, NULL)){clauses}"
    return rounded_sum(f"concat({others}, {_middle_buckets(_middle_sums(bucket, limbs, clauses))})", type)


def sum_of_middle_limbs(bucket: str, limbs: tuple[str, ...], clauses: str, type: str) -> str:
    """As `sum_of_limbs`, over rows with NULL and middle buckets only.

    A group with values of only one bucket has a form without functions of arrays, whose code is faster. Spark takes
    several times as long to plan and to compile it.
    """
    sums = _middle_sums(bucket, limbs, clauses)
    general = rounded_sum(_middle_buckets(sums), type)
    if type == "FLOAT":
        return general
    number = " + ".join(f"IF({totals[0]} IS NULL, 0, 1)" for totals in sums.values())
    limbs_of_own = [f"coalesce({', '.join(of_limb)})" for of_limb in zip(*sums.values(), strict=True)]
    units = " ".join(
        f"WHEN {totals[0]} IS NOT NULL THEN {2.0 ** (_WIDTH * _BITS * b - _UNIT)!r}D" for b, totals in sums.items()
    )
    is_simple = f"{number} = 1 AND abs({limbs_of_own[-1]}) < {1 << 60}L"
    return f"IF({is_simple}, {_double_of_limbs(limbs_of_own)} * CASE {units} END, {general})"


def _middle_sums(bucket: str, limbs: tuple[str, ...], clauses: str) -> dict[int, list[str]]:
    """The sums of the limbs, by middle bucket."""
    return {b: [f"sum(IF({bucket} = {b}, {limb}, NULL)){clauses}" for limb in limbs] for b in MIDDLE}


def _middle_buckets(sums: dict[int, list[str]]) -> str:
    """The middle buckets that have values, as an array that `rounded_sum` needs."""
    own = (f"IF({totals[0]} IS NULL, NULL, {_row(str(b), totals)})" for b, totals in sums.items())
    return f"array_compact(array({', '.join(own)}))"


def _row(bucket: str, limbs: Sequence[str]) -> str:
    """An element of the array that `rounded_sum` needs."""
    return f"struct({bucket} AS b, {', '.join(f'{limb} AS s{i}' for i, limb in enumerate(limbs))})"


def _double_of_limbs(limbs: list[str]) -> str:
    """The nearest double to the sum of limb[i] * 2**(30 * i). The highest limb is less than 2**60 in size."""
    *digits, carry = _digits(limbs)
    with_carry = _double(carry, digits[3], digits[2], _sign(f"{digits[1]} * {_BASE}L + {digits[0]}"))
    without_carry = _double(digits[3], digits[2], digits[1], _sign(digits[0]))
    return (
        f"CASE WHEN {carry} <> 0 THEN {with_carry} * {2.0 ** (2 * _BITS)!r}D"
        f" WHEN {digits[3]} <> 0 THEN {without_carry} * {2.0**_BITS!r}D"
        f" ELSE {_double(digits[2], digits[1], digits[0], '0L')} END"
    )


def _digits(limbs: list[str]) -> list[str]:
    """Digits between -2**29 and 2**29 - 1 with the same sum as the limbs, from the lowest on; the last is the carry."""
    digits = []
    carry = "0L"
    for limb in limbs:
        rounded = f"({limb} + {carry} + {_HALF}L)"
        digits.append(f"(({rounded} & {_BASE - 1}L) - {_HALF}L)")
        carry = f"shiftright({rounded}, {_BITS})"
    return [*digits, carry]


def _double(high: str, middle: str, low: str, rest: str) -> str:
    """The nearest double to high * 2**60 + middle * 2**30 + low. `rest`: the sign of what is below the three digits.

    The sum of two exact doubles, which is rounded once. If `rest` is not 0, `high` must not be 0 either: the three then
    have at least 60 bits, enough to round correctly.
    """
    head = f"CAST(shiftleft({high}, {_BITS}) + {middle} - ({middle} & 1023L) AS DOUBLE) * {_BASE}D"
    tail = f"CAST(shiftleft({middle} & 1023L, {_BITS}) + {low} AS DOUBLE) + {rest} * 0.5D"
    return f"({head} + ({tail}))"


def rounded_sum(sums: str, type: str) -> str:
    """The sum of all values as a FLOAT or DOUBLE; NULL if there are none.

    Raises 22003 if it is too large. `sums`: an array of structs (b, s0, s1, ...), a bucket and the sums of its limbs.
    """

    def has(bucket: int) -> str:
        return f"exists(a, e -> e.b = {bucket})"

    special = (
        f"CASE WHEN {has(_NAN)} OR {has(_INFINITY)} AND {has(_MINUS_INFINITY)} THEN CAST('NaN' AS {type})"
        f" WHEN {has(_INFINITY)} THEN CAST('Infinity' AS {type}) ELSE CAST('-Infinity' AS {type}) END"
    )
    value = (
        f"CASE WHEN size(a) = 0 THEN NULL WHEN exists(a, e -> e.b > {_MINUS_ZERO}) THEN {special}"
        f" WHEN forall(a, e -> e.b = {_MINUS_ZERO}) THEN CAST('-0.0' AS {type})"
        f" ELSE {_let(f'filter(a, e -> e.b < {_MINUS_ZERO})', 'f', _rounded('f', type))} END"
    )
    return f"CAST({_let(sums, 'a', value)} AS {type})"


def _rounded(a: str, type: str) -> str:
    """The sum of finite values.

    The sums of limbs that have the same position, from the lowest position on, are turned into digits between -2**29
    and 2**29 - 1, with a carry. The fold keeps the highest digit that is not zero and its position (h, q), the two
    digits below it (m, l), and the sign of everything below these (r). With such digits, the sign of the highest one is
    the sign of the sum, and the three have at least 60 bits: enough to round correctly.
    """
    low, high = (f"(array_{end}(transform({a}, e -> e.b)) * {_WIDTH})" for end in ("min", "max"))
    limbs = " ".join(f"WHEN {i} THEN e.s{i}" for i in range(LIMBS))
    at_position = f"aggregate({a}, 0L, (t, e) -> t + CASE p - e.b * {_WIDTH} {limbs} ELSE 0L END)"
    positions = f"transform(sequence({low}, {high} + {LIMBS + 1}), p -> {at_position})"
    start = f"struct(0L AS c, {low} - 1 AS n, {low} - 1 AS q, 0L AS h, 0L AS m, 0L AS l, 0L AS r)"
    digit = f"((s.c + v + {_HALF}L & {_BASE - 1}L) - {_HALF}L)"
    below_one = _sign("2L * s.l + s.r")
    below_two = _sign(f"2L * (s.m * {_BASE}L + s.l) + s.r")
    step = (
        f"struct(shiftright(s.c + v + {_HALF}L, {_BITS}) AS c, s.n + 1 AS n, IF({digit} = 0, s.q, s.n + 1) AS q,"
        f" IF({digit} = 0, s.h, {digit}) AS h,"
        f" CASE WHEN {digit} = 0 THEN s.m WHEN s.n = s.q THEN s.h ELSE 0L END AS m,"
        f" CASE WHEN {digit} = 0 THEN s.l WHEN s.n = s.q THEN s.m WHEN s.n = s.q + 1 THEN s.h ELSE 0L END AS l,"
        f" CASE WHEN {digit} = 0 THEN s.r WHEN s.n = s.q THEN {below_one} WHEN s.n = s.q + 1 THEN {below_two}"
        f" ELSE {_sign('s.h')} END AS r)"
    )
    rounded = _float_of_fold("s") if type == "FLOAT" else _double_of_fold("s")
    fault = fail(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
    checked = _let(f"CAST({rounded} AS {type})", "x", f"IF(abs(x) = {_INFINITE}, {fault}, x)")
    return f"aggregate({positions}, {start}, (s, v) -> {step}, s -> {checked})"


def _double_of_fold(s: str) -> str:
    """The nearest double to the state of the fold.

    Multiplying by powers of two does not round: a sum of floats that is subnormal is a float.
    """
    return _times_unit(_double(f"{s}.h", f"{s}.m", f"{s}.l", f"{s}.r"), f"{_BITS} * ({s}.q - 2) - {_UNIT}")


def _float_of_fold(s: str) -> str:
    """A double that is rounded to the nearest float to the state. It has at least 29 bits of the sum, and one more that
    says whether there are others."""
    few = f"CAST(shiftleft({s}.h, {_BITS}) + {s}.m AS DOUBLE) + signum(2L * {s}.l + {s}.r) * 0.5D"
    many = (
        f"CAST(shiftleft({s}.h, {_BITS}) + {s}.m - ({s}.m & 1023) AS DOUBLE)"
        f" + signum(2L * (shiftleft({s}.m & 1023, {_BITS}) + {s}.l) + {s}.r) * 512D"
    )
    return _times_unit(f"IF(abs({s}.h) < 32768, {few}, {many})", f"{_BITS} * ({s}.q - 1) - {_UNIT}")


def _times_unit(value: str, exponent: str) -> str:
    """The value times a power of two, in two steps: the power alone may be too large or too small."""
    half = f"({exponent}) DIV 2"
    return f"{value} * pow(2D, CAST({half} AS DOUBLE)) * pow(2D, CAST({exponent} - {half} AS DOUBLE))"


def _sign(value: str) -> str:
    return f"CAST(signum({value}) AS BIGINT)"


def _let(value: str, name: str, form: str) -> str:
    """`form`, in which the variable `name` is `value`, so that `value` is evaluated once."""
    return f"get(transform(array({value}), {name} -> {form}), 0)"
