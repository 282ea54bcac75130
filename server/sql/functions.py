"""ONE table of the functions, operators, aggregates and window functions that Tidewire knows.

Each row: name, argument types, result type, and its form in Spark SQL, in which {0}, {1}, ... are the arguments. An
aggregate's form has {d} for DISTINCT and {f} for what follows its parentheses (FILTER, OVER); {a} is an ordered list.
A form may also be Python that writes the text. No form at all: PostgreSQL has the function and resolution must see it,
but Tidewire refuses it (0A000). What is not here does not exist (42883): nothing passes to Spark by its name alone.

`resolve_function` and `resolve_operator` choose among rows of one name as PostgreSQL does (manual, chapter 10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import product

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    BOOL,
    NUMERIC_PRECISION_MAX,
    TEXT,
    UNKNOWN,
    PgType,
    array_of,
    scalar,
)  # fmt: skip
from server.sql import decimals, patterns
from server.sql.casts import Coercion, find_cast
from server.sql.decimals import Shape
from server.sql.expressions import Expression, Literal, precision

ANY = PgType("any", 2276, 4)  # any type, each argument its own
ANYELEMENT = PgType("anyelement", 2283, 4)  # any type, the same wherever it stands
ANYARRAY = PgType("anyarray", 2277, -1)  # an array of it
_PSEUDO = {type.name: type for type in (ANY, ANYELEMENT, ANYARRAY)}


class Kind(Enum):
    SCALAR = "function"
    AGGREGATE = "aggregate"
    WINDOW = "window"


class Nulls(Enum):
    """When the result can be NULL."""

    STRICT = "if an argument is"
    MAYBE = "always possible"
    NEVER = "never"


Form = Callable[[Sequence[Expression], Sequence[str]], str]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A row of the table; rows are compared by identity.

    `prepare` checks arguments when the query is planned and may replace them. `shape` gives a numeric result's.
    `zoned`: depends on the session's time zone. `variadic`: the last argument may repeat.
    """

    name: str
    arguments: tuple[PgType, ...]
    result: PgType
    spark: str | Form | None
    kind: Kind = Kind.SCALAR
    nulls: Nulls = Nulls.STRICT
    shape: Callable[[Sequence[Expression]], Shape] | None = None
    prepare: Callable[[tuple[Expression, ...]], tuple[Expression, ...]] | None = None
    variadic: bool = False
    zoned: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(type.display for type in self.arguments)})"


FUNCTIONS: dict[str, list[Function]] = {}
OPERATORS: dict[str, list[Function]] = {}


def _types(spelling: str) -> tuple[PgType, ...]:
    return tuple(_PSEUDO.get(name) or scalar(name) for name in spelling.split())


def _result(spelling: str) -> PgType:
    if spelling.endswith("[]"):
        return array_of(scalar(spelling[:-2]))
    return _PSEUDO.get(spelling) or scalar(spelling)


def _row(
    table: dict[str, list[Function]],
    name: str,
    arguments: str,
    result: str,
    spark: str | Form | None,
    kind: Kind = Kind.SCALAR,
    nulls: Nulls = Nulls.STRICT,
    shape: Callable[[Sequence[Expression]], Shape] | None = None,
    prepare: Callable[[tuple[Expression, ...]], tuple[Expression, ...]] | None = None,
    variadic: bool = False,
    zoned: bool = False,
) -> None:
    row = Function(name, _types(arguments), _result(result), spark, kind, nulls, shape, prepare, variadic, zoned)
    table.setdefault(name, []).append(row)


# -- forms ------------------------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """A Spark string literal. `${` would be substituted, a backslash is an escape."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def fail(state: SqlState, message: str) -> str:
    """Spark SQL that raises; `server.spark.errors` reads code and message back."""
    return f"raise_error({quote(f'{state}:{message}')})"


def shape_of(expression: Expression) -> Shape:
    return Shape(precision(expression), expression.type.scale or 0)


def _fitted(expression: Expression, text: str, shape: Shape) -> str:
    return text if shape_of(expression) == shape else f"CAST({text} AS {shape})"


def _decimal(symbol: str, rule: Callable[[Shape, Shape], decimals.Operation]) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        operation = rule(shape_of(args[0]), shape_of(args[1]))
        left = _fitted(args[0], texts[0], operation.left)
        right = _fitted(args[1], texts[1], operation.right)
        text = f"({left} {symbol} {right})"
        if symbol == "/" and operation.right.scale < (args[1].type.scale or 0):
            refusal = fail(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "division by a numeric of more than 9 decimals")
            text = f"IF({right} <> {texts[1]}, {refusal}, {text})"
        return text

    return form


def _decimal_shape(rule: Callable[[Shape, Shape], decimals.Operation]) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: rule(shape_of(args[0]), shape_of(args[1])).result


def _compare_numeric(symbol: str) -> Form:
    """Spark widens to 38 digits at the cost of decimals, so that 0.1 could equal 0.10000001: fix the scale first."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        left, right = shape_of(args[0]), shape_of(args[1])
        scale = max(left.scale, right.scale)
        if max(left.whole, right.whole) + scale > NUMERIC_PRECISION_MAX and left != right:
            common = Shape(NUMERIC_PRECISION_MAX, scale)
            texts = [_fitted(arg, text, common) for arg, text in zip(args, texts, strict=True)]
        return f"({texts[0]} {symbol} {texts[1]})"

    return form


def _same_shape(args: Sequence[Expression]) -> Shape:
    return shape_of(args[0])


def _fixed(digits: int, scale: int = 0) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: Shape(digits, scale)


def literal(argument: Expression, what: str) -> object:
    """The value of an argument that must be known when the query is planned."""
    if not isinstance(argument, Literal) or argument.value is None:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} that is not a constant is not supported")
    return argument.value


# -- arithmetic and comparison ----------------------------------------------------------------------------------

_INTEGERS = ("int2", "int4", "int8")
_WIDER = {(a, b): _INTEGERS[max(i, j)] for i, a in enumerate(_INTEGERS) for j, b in enumerate(_INTEGERS)}
_SPARK_INTEGER = {"int2": "SMALLINT", "int4": "INT", "int8": "BIGINT"}
_COMPARISONS = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

for (_a, _b), _wide in _WIDER.items():
    for _symbol in "+-*":
        _row(OPERATORS, _symbol, f"{_a} {_b}", _wide, f"({{0}} {_symbol} {{1}})")
    _row(OPERATORS, "/", f"{_a} {_b}", _wide, f"CAST(({{0}} div {{1}}) AS {_SPARK_INTEGER[_wide]})")
for _a in _INTEGERS:
    _row(OPERATORS, "%", f"{_a} {_a}", _a, "({0} % {1})")
    _row(FUNCTIONS, "mod", f"{_a} {_a}", _a, "({0} % {1})")
    for _symbol in "&|":
        _row(OPERATORS, _symbol, f"{_a} {_a}", _a, f"({{0}} {_symbol} {{1}})")
    _row(OPERATORS, "#", f"{_a} {_a}", _a, "({0} ^ {1})")
    _row(OPERATORS, "~", _a, _a, "(~ {0})")
    _row(OPERATORS, "-", _a, _a, "(- {0})")
    _row(FUNCTIONS, "abs", _a, _a, "abs({0})")
for _a, _b in product(("float4", "float8"), repeat=2):
    _wide = "float4" if (_a, _b) == ("float4", "float4") else "float8"
    for _symbol in "+-*/":
        _row(OPERATORS, _symbol, f"{_a} {_b}", _wide, f"({{0}} {_symbol} {{1}})")
for _a in ("float4", "float8"):
    _row(OPERATORS, "-", _a, _a, "(- {0})")
    _row(FUNCTIONS, "abs", _a, _a, "abs({0})")
for _symbol, _rule in (
    ("+", decimals.add), ("-", decimals.add), ("*", decimals.multiply), ("/", decimals.divide),
    ("%", decimals.remainder),
):  # fmt: skip
    _row(OPERATORS, _symbol, "numeric numeric", "numeric", _decimal(_symbol, _rule), shape=_decimal_shape(_rule))
_row(FUNCTIONS, "mod", "numeric numeric", "numeric", _decimal("%", decimals.remainder),
     shape=_decimal_shape(decimals.remainder))  # fmt: skip
_row(OPERATORS, "-", "numeric", "numeric", "(- {0})", shape=_same_shape)
_row(FUNCTIONS, "abs", "numeric", "numeric", "abs({0})", shape=_same_shape)

for _symbol in _COMPARISONS:
    _form = f"({{0}} {_symbol} {{1}})"
    for _a, _b in product(_INTEGERS, repeat=2):
        _row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form)
    for _a, _b in product(("float4", "float8"), repeat=2):
        _row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form)
    for _a, _b in product(("date", "timestamp", "timestamptz"), repeat=2):
        _row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _form, zoned=(_a == "timestamptz") != (_b == "timestamptz"))
    for _a in ("bool", "text", "bytea", "time", "uuid"):
        _row(OPERATORS, _symbol, f"{_a} {_a}", "bool", _form)
    _row(OPERATORS, _symbol, "numeric numeric", "bool", _compare_numeric(_symbol))
    _row(OPERATORS, _symbol, "bpchar bpchar", "bool", f"(rtrim({{0}}) {_symbol} rtrim({{1}}))")
    for _a in ("interval", "jsonb"):
        _row(OPERATORS, _symbol, f"{_a} {_a}", "bool", None)
    _row(OPERATORS, _symbol, "anyarray anyarray", "bool", _form if _symbol in ("=", "<>") else None)


def _guarded(condition: str, state: SqlState, message: str, form: str) -> str:
    return f"IF({condition}, {fail(state, message)}, {form})"


def _power(args: Sequence[Expression], texts: Sequence[str]) -> str:
    base, exponent = texts
    refusals = (
        (f"{base} = 0 AND {exponent} < 0", "zero raised to a negative power is undefined"),
        (f"{base} < 0 AND {exponent} <> floor({exponent})",
         "a negative number raised to a non-integer power yields a complex result"),
    )  # fmt: skip
    text = _finite("power({0}, {1})", "abs({0}) < {inf} AND abs({1}) < {inf}").format(base, exponent)
    for condition, message in refusals:
        text = _guarded(condition, SqlState.INVALID_ARGUMENT_FOR_POWER_FUNCTION, message, text)
    return text


def _finite(spark: str, finite_arguments: str) -> str:
    """Raises where finite arguments gave an infinite double, as PostgreSQL does."""
    infinity = "CAST('Infinity' AS DOUBLE)"
    overflow = f"{finite_arguments} AND abs({spark}) = {{inf}}".replace("{inf}", infinity)
    return _guarded(overflow, SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow", spark)


_LOG_ARGUMENT = SqlState.INVALID_ARGUMENT_FOR_LOGARITHM


def _logarithm(spark: str) -> str:
    inner = _guarded("{0} < 0", _LOG_ARGUMENT, "cannot take logarithm of a negative number", spark)
    return _guarded("{0} = 0", _LOG_ARGUMENT, "cannot take logarithm of zero", inner)


def _round_scale(args: Sequence[Expression]) -> int:
    scale = literal(args[1], "a number of decimals")
    assert isinstance(scale, int)
    return min(max(scale, 0), 18)


def _check_round(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    _round_scale(args)
    return args


def _round_shape(args: Sequence[Expression]) -> Shape:
    whole = min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX - _round_scale(args))
    return Shape(whole + _round_scale(args), _round_scale(args))


def _rounded(spark: str) -> Form:
    """round, floor or ceil of a numeric to a known number of decimals; trunc is towards zero."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        scale = literal(args[1], "a number of decimals")
        return f"CAST({spark.format(texts[0], scale)} AS {_round_shape(args)})"

    return form


def _whole_shape(args: Sequence[Expression]) -> Shape:
    return Shape(min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX), 0)


def _to_whole(spark: str) -> Form:
    return lambda args, texts: f"CAST({spark.format(texts[0])} AS {_whole_shape(args)})"


_TRUNC = "IF({0} < 0, ceil({0}{1}), floor({0}{1}))"
# ceil and floor of a DOUBLE are BIGINT in Spark; beyond 2^52 a double is whole anyway
_FLOAT_WHOLE = "IF(abs({{0}}) < 4503599627370496D, CAST({0} AS DOUBLE), {{0}})"

for _name in ("power", "pow"):
    _row(FUNCTIONS, _name, "float8 float8", "float8", _power)
    _row(FUNCTIONS, _name, "numeric numeric", "numeric", None)
_row(OPERATORS, "^", "float8 float8", "float8", _power)
_row(OPERATORS, "^", "numeric numeric", "numeric", None)
_row(FUNCTIONS, "sqrt", "float8", "float8", _guarded(
    "{0} < 0", SqlState.INVALID_ARGUMENT_FOR_POWER_FUNCTION, "cannot take square root of a negative number",
    "sqrt({0})"))  # fmt: skip
_row(OPERATORS, "|/", "float8", "float8", FUNCTIONS["sqrt"][0].spark)
_row(FUNCTIONS, "exp", "float8", "float8", _finite("exp({0})", "abs({0}) < {inf}"))
_row(FUNCTIONS, "ln", "float8", "float8", _logarithm("ln({0})"))
for _name in ("log", "log10"):
    _row(FUNCTIONS, _name, "float8", "float8", _logarithm("log10({0})"))
    _row(FUNCTIONS, _name, "numeric", "numeric", None)
for _name in ("sqrt", "exp", "ln"):
    _row(FUNCTIONS, _name, "numeric", "numeric", None)
_row(FUNCTIONS, "sign", "float8", "float8", "signum({0})")
_row(FUNCTIONS, "sign", "numeric", "numeric",
     "CASE WHEN {0} > 0 THEN 1BD WHEN {0} < 0 THEN -1BD WHEN {0} = 0 THEN 0BD END", shape=_fixed(1))  # fmt: skip
_row(FUNCTIONS, "round", "float8", "float8", "rint({0})")
_row(FUNCTIONS, "round", "numeric", "numeric", _to_whole("round({0}, 0)"), shape=_whole_shape)
_row(FUNCTIONS, "round", "numeric int4", "numeric", _rounded("round({0}, {1})"), shape=_round_shape,
     prepare=_check_round)  # fmt: skip
_row(FUNCTIONS, "trunc", "float8", "float8", _FLOAT_WHOLE.format(_TRUNC.format("{0}", "")))
_row(FUNCTIONS, "trunc", "numeric", "numeric", _to_whole(_TRUNC.format("{0}", "")), shape=_whole_shape)
_row(FUNCTIONS, "trunc", "numeric int4", "numeric", _rounded(_TRUNC.format("{0}", ", {1}")), shape=_round_shape,
     prepare=_check_round)  # fmt: skip
for _name in ("ceil", "ceiling", "floor"):
    _spark = "floor({0})" if _name == "floor" else "ceil({0})"
    _row(FUNCTIONS, _name, "float8", "float8", _FLOAT_WHOLE.format(_spark))
    _row(FUNCTIONS, _name, "numeric", "numeric", _to_whole(_spark), shape=_whole_shape)

# -- strings ----------------------------------------------------------------------------------------------------

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_FOLD = f"translate({{0}}, '{_UPPER}', '{_LOWER}')"  # the locale is C: only ASCII has cases


def _like_pattern(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """With a literal pattern (and escape), the pattern as Spark reads it; it must be literal if there is an escape."""
    value, pattern, *escapes = args
    if escapes:
        escape = literal(escapes[0], "an ESCAPE")
        assert isinstance(escape, str)
        if len(escape) > 1:
            raise PgError(
                SqlState.INVALID_ESCAPE_SEQUENCE,
                "invalid escape string",
                hint="Escape string must be empty or one character.",
            )
        text = literal(pattern, "a pattern with ESCAPE")
        assert isinstance(text, str)
        return (value, replace(_text_literal(pattern), value=patterns.like(text, escape)))
    if isinstance(pattern, Literal) and pattern.value is not None:
        return (value, replace(pattern, value=patterns.like(pattern.value)))
    return args


def _text_literal(expression: Expression) -> Literal:
    assert isinstance(expression, Literal)
    return expression


_ENDS_IN_ESCAPE = r"(?s)\A(.*[^\\])?(\\\\)*\\\z"
_ESCAPES = r"(?s)(\\[%_\\])|\\(.)"  # kept where Spark wants one, else what it escapes


def _like(template: str) -> Form:
    """A pattern that is known has been made Spark's; another one is when the row is there."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        pattern = texts[1]
        if not isinstance(args[1], Literal):
            message = "LIKE pattern must not end with escape character"
            normal = f"regexp_replace({pattern}, {quote(_ESCAPES)}, '$1$2')"
            pattern = _guarded(
                f"{pattern} RLIKE {quote(_ENDS_IN_ESCAPE)}", SqlState.INVALID_ESCAPE_SEQUENCE, message, normal
            )
        return template.format(texts[0], pattern)

    return form


def _regex_pattern(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    pattern = _text_literal(args[1]) if isinstance(args[1], Literal) else None
    if pattern is not None and pattern.value is None:
        return args
    text = literal(args[1], "a regular expression")
    assert isinstance(text, str)
    assert pattern is not None
    return (args[0], replace(pattern, value=patterns.regex(text)))


def _insensitive(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    value, pattern = _regex_pattern(args)
    text = _text_literal(pattern)
    return (value, text if text.value is None else replace(text, value="(?i)" + text.value))


for _name, _spark in (("~~", "({0} LIKE {1})"), ("!~~", "({0} NOT LIKE {1})")):
    _row(OPERATORS, _name, "text text", "bool", _like(_spark), prepare=_like_pattern)
    _row(OPERATORS, _name, "text text text", "bool", _like(_spark), prepare=_like_pattern)  # with ESCAPE
    _folded = _spark.format(_FOLD, _FOLD.replace("{0}", "{1}"))
    _row(OPERATORS, _name + "*", "text text", "bool", _like(_folded), prepare=_like_pattern)
    _row(OPERATORS, _name + "*", "text text text", "bool", _like(_folded), prepare=_like_pattern)
for _name, _spark in (("~", "({0} RLIKE {1})"), ("!~", "(NOT {0} RLIKE {1})")):
    _row(OPERATORS, _name, "text text", "bool", _spark, prepare=_regex_pattern)
    _row(OPERATORS, _name + "*", "text text", "bool", _spark, prepare=_insensitive)

_SUBSTRING_ERROR = "negative substring length not allowed"
_row(OPERATORS, "||", "text text", "text", "({0} || {1})")
_row(OPERATORS, "||", "bytea bytea", "bytea", "({0} || {1})")
_row(OPERATORS, "||", "jsonb jsonb", "jsonb", None)
_row(OPERATORS, "||", "anyarray anyarray", "anyarray", None)
_row(OPERATORS, "||", "anyarray anyelement", "anyarray", None)
_row(OPERATORS, "||", "anyelement anyarray", "anyarray", None)
_row(FUNCTIONS, "concat", "any", "text", "concat_ws('', {*})", nulls=Nulls.NEVER, variadic=True)
_row(FUNCTIONS, "concat_ws", "text any", "text", "concat_ws({*})", variadic=True, nulls=Nulls.MAYBE)
for _name in ("length", "char_length", "character_length"):
    _row(FUNCTIONS, _name, "text", "int4", "char_length({0})")
    _row(FUNCTIONS, _name, "bpchar", "int4", "char_length(rtrim({0}))")
_row(FUNCTIONS, "length", "bytea", "int4", "octet_length({0})")
for _a in ("text", "bpchar", "bytea"):
    _row(FUNCTIONS, "octet_length", _a, "int4", "octet_length({0})")
_row(FUNCTIONS, "lower", "text", "text", _FOLD)
_row(FUNCTIONS, "upper", "text", "text", f"translate({{0}}, '{_LOWER}', '{_UPPER}')")
for _name in ("substring", "substr"):
    _row(FUNCTIONS, _name, "text int4", "text", "substr({0}, IF({1} < 1, 1, {1}))")
    _row(FUNCTIONS, _name, "text int4 int4", "text", _guarded(
        "{2} < 0", SqlState.SUBSTRING_ERROR, _SUBSTRING_ERROR,
        "substr({0}, IF({1} < 1, 1, {1}), CAST(IF({1} < 1, IF({1} + CAST({2} AS BIGINT) < 1, 0, "
        "{1} + CAST({2} AS BIGINT) - 1), {2}) AS INT))"))  # fmt: skip
_row(FUNCTIONS, "substring", "text text", "text", None)
_row(FUNCTIONS, "left", "text int4", "text",
     "substr({0}, 1, IF({1} >= 0, {1}, IF(char_length({0}) + {1} < 0, 0, char_length({0}) + {1})))")  # fmt: skip
_row(FUNCTIONS, "right", "text int4", "text",
     "substr({0}, IF({1} < 0, 1 - {1}, IF(char_length({0}) < {1}, 1, char_length({0}) - {1} + 1)))")  # fmt: skip
for _name, _side in (("btrim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
    _row(FUNCTIONS, _name, "text", "text", f"TRIM({_side} FROM {{0}})")
    _row(FUNCTIONS, _name, "text text", "text", f"TRIM({_side} {{1}} FROM {{0}})")
_row(FUNCTIONS, "replace", "text text text", "text", "replace({0}, {1}, {2})")
_row(FUNCTIONS, "translate", "text text text", "text", "translate({0}, {1}, {2})")
_row(FUNCTIONS, "strpos", "text text", "int4", "instr({0}, {1})")
_row(FUNCTIONS, "position", "text text", "int4", "instr({0}, {1})")
_row(
    FUNCTIONS,
    "split_part",
    "text text int4",
    "text",
    _guarded(
        "{2} = 0", SqlState.INVALID_PARAMETER_VALUE, "field position must not be zero", "split_part({0}, {1}, {2})"
    ),
)
for _name in ("lpad", "rpad"):
    _row(FUNCTIONS, _name, "text int4", "text", f"{_name}({{0}}, {{1}}, ' ')")
    _row(FUNCTIONS, _name, "text int4 text", "text", f"{_name}({{0}}, {{1}}, {{2}})")
_row(FUNCTIONS, "repeat", "text int4", "text", "repeat({0}, {1})")
_row(FUNCTIONS, "reverse", "text", "text", "reverse({0})")
_row(FUNCTIONS, "starts_with", "text text", "bool", "startswith({0}, {1})")
_row(OPERATORS, "^@", "text text", "bool", "startswith({0}, {1})")
_row(FUNCTIONS, "md5", "text", "text", "md5({0})")
_row(FUNCTIONS, "md5", "bytea", "text", "md5({0})")

# -- arrays -----------------------------------------------------------------------------------------------------

_row(FUNCTIONS, "cardinality", "anyarray", "int4", "size({0})")
_row(FUNCTIONS, "array_length", "anyarray int4", "int4", "IF({1} = 1, nullif(size({0}), 0), NULL)", nulls=Nulls.MAYBE)

# -- dates and times --------------------------------------------------------------------------------------------

_row(OPERATORS, "+", "date int4", "date", "date_add({0}, {1})")
_row(OPERATORS, "+", "int4 date", "date", "date_add({1}, {0})")
_row(OPERATORS, "-", "date int4", "date", "date_sub({0}, {1})")
_row(OPERATORS, "-", "date date", "int4", "datediff({0}, {1})")
for _symbol in "+-":
    _row(OPERATORS, _symbol, "date interval", "timestamp", f"(CAST({{0}} AS TIMESTAMP_NTZ) {_symbol} {{1}})")
    _row(OPERATORS, _symbol, "timestamp interval", "timestamp", f"({{0}} {_symbol} {{1}})")
    _row(OPERATORS, _symbol, "timestamptz interval", "timestamptz", f"({{0}} {_symbol} {{1}})", zoned=True)
    _row(OPERATORS, _symbol, "interval interval", "interval", None)
    _row(OPERATORS, _symbol, "time interval", "time", None)
_row(OPERATORS, "+", "interval date", "timestamp", "(CAST({1} AS TIMESTAMP_NTZ) + {0})")
_row(OPERATORS, "+", "interval timestamp", "timestamp", "({1} + {0})")
_row(OPERATORS, "+", "interval timestamptz", "timestamptz", "({1} + {0})", zoned=True)
_row(OPERATORS, "+", "date time", "timestamp", None)
_row(OPERATORS, "+", "time date", "timestamp", None)
_row(OPERATORS, "-", "interval", "interval", None)
_row(OPERATORS, "*", "interval float8", "interval", None)
_row(OPERATORS, "*", "float8 interval", "interval", None)
_row(OPERATORS, "/", "interval float8", "interval", None)
_row(OPERATORS, "-", "time time", "interval", None)
# in PostgreSQL the difference is whole days and the rest; {x} are microseconds
_DIFFERENCE = (
    "make_interval(0, 0, 0, CAST(({x} div 86400000000L) AS INT), 0, 0, "
    "CAST(({x} % 86400000000L) AS DECIMAL(18,0)) * 0.000001BD)"
)
_row(OPERATORS, "-", "timestamp timestamp", "interval", _DIFFERENCE.replace("{x}",
     "(unix_micros(CAST({0} AS TIMESTAMP_LTZ)) - unix_micros(CAST({1} AS TIMESTAMP_LTZ)))"))  # fmt: skip
_row(OPERATORS, "-", "timestamptz timestamptz", "interval",
     _DIFFERENCE.replace("{x}", "(unix_micros({0}) - unix_micros({1}))"))  # fmt: skip

_TRUNCATIONS = ("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_FIELD_ALIASES = {
    "years": "year", "months": "month", "mon": "month", "days": "day", "hours": "hour", "minutes": "minute",
    "min": "minute", "mins": "minute", "seconds": "second", "sec": "second", "secs": "second", "weeks": "week",
    "millisecond": "milliseconds", "msec": "milliseconds", "ms": "milliseconds", "microsecond": "microseconds",
    "usec": "microseconds", "us": "microseconds", "qtr": "quarter", "decades": "decade", "centuries": "century",
    "millennia": "millennium", "y": "year", "d": "day", "h": "hour", "m": "minute", "s": "second", "w": "week",
}  # fmt: skip


def _field(argument: Expression) -> str:
    name = str(literal(argument, "a field name")).lower()
    return _FIELD_ALIASES.get(name, name)


def _check_truncation(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if _field(args[0]) not in _TRUNCATIONS:
        raise _unit_refused(args[0], args[1].type)
    return args


def _unit_refused(argument: Expression, type: PgType) -> PgError:
    written = str(literal(argument, "a field name")).lower()
    known = _field(argument) in _EXTRACTIONS or _field(argument) in ("julian", "timezone")
    if not known:
        return PgError(
            SqlState.INVALID_PARAMETER_VALUE, f'unit "{written}" not recognized for type {type.base_display}'
        )
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f'unit "{written}" not supported for type {type.base_display}')


def _truncate(spark_type: str) -> Form:
    spark = {"microseconds": "MICROSECOND", "milliseconds": "MILLISECOND"}
    return lambda args, texts: (
        f"CAST(date_trunc('{spark.get(_field(args[0]), _field(args[0]))}', {texts[1]}) AS {spark_type})"
    )


_row(FUNCTIONS, "date_trunc", "text timestamp", "timestamp", _truncate("TIMESTAMP_NTZ"), prepare=_check_truncation)
_row(FUNCTIONS, "date_trunc", "text timestamptz", "timestamptz", _truncate("TIMESTAMP_LTZ"), zoned=True,
     prepare=_check_truncation)  # fmt: skip
_row(FUNCTIONS, "date_trunc", "text interval", "interval", None)

_SECONDS = "extract(SECOND FROM {0})"
# field: Spark form, shape; a date has those before "hour"
_EXTRACTIONS: dict[str, tuple[str, Shape]] = {
    "millennium": ("((year({0}) + 999) div 1000)", Shape(20, 0)),
    "century": ("((year({0}) + 99) div 100)", Shape(20, 0)),
    "decade": ("(year({0}) div 10)", Shape(20, 0)),
    "year": ("year({0})", Shape(20, 0)),
    "isoyear": ("extract(YEAROFWEEK FROM {0})", Shape(20, 0)),
    "quarter": ("quarter({0})", Shape(20, 0)),
    "month": ("month({0})", Shape(20, 0)),
    "week": ("weekofyear({0})", Shape(20, 0)),
    "day": ("day({0})", Shape(20, 0)),
    "doy": ("dayofyear({0})", Shape(20, 0)),
    "dow": ("(dayofweek({0}) - 1)", Shape(20, 0)),
    "isodow": ("(weekday({0}) + 1)", Shape(20, 0)),
    "epoch": ("", Shape(26, 6)),
    "hour": ("hour({0})", Shape(20, 0)),
    "minute": ("minute({0})", Shape(20, 0)),
    "second": (_SECONDS, Shape(8, 6)),
    "milliseconds": (f"({_SECONDS} * 1000BD)", Shape(8, 3)),
    "microseconds": (f"({_SECONDS} * 1000000BD)", Shape(8, 0)),
}
_TIME_FIELDS = ("hour", "minute", "second", "milliseconds", "microseconds")
_MICROS = "CAST(CAST(unix_micros(CAST({0} AS TIMESTAMP_LTZ)) AS DECIMAL(20,0)) * 0.000001BD AS DECIMAL(26,6))"


def _extraction(args: Sequence[Expression]) -> tuple[str, Shape]:
    """Spark form and shape of a field of a date, time or timestamp."""
    field, type = _field(args[0]), args[1].type.name
    known = _EXTRACTIONS.get(field)
    has = {"date": field not in _TIME_FIELDS, "time": field in _TIME_FIELDS}.get(type, True)
    if known is None or not has:
        raise _unit_refused(args[0], args[1].type)
    if field == "epoch":
        return ("(unix_date({0}) * 86400L)", Shape(20, 0)) if type == "date" else (_MICROS, known[1])
    return known


def _check_extraction(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    _extraction(args)
    return args


def _extract(args: Sequence[Expression], texts: Sequence[str]) -> str:
    form, shape = _extraction(args)
    return f"CAST({form.format(texts[1])} AS {shape})"


for _a in ("date", "timestamp", "timestamptz"):
    _row(FUNCTIONS, "extract", f"text {_a}", "numeric", _extract, shape=lambda args: _extraction(args)[1],
         prepare=_check_extraction, zoned=_a == "timestamptz")  # fmt: skip
    _row(FUNCTIONS, "date_part", f"text {_a}", "float8",
         lambda args, texts: f"CAST({_extract(args, texts)} AS DOUBLE)", prepare=_check_extraction,
         zoned=_a == "timestamptz")  # fmt: skip
for _name, _a in product(("extract", "date_part"), ("interval", "time")):
    _row(FUNCTIONS, _name, f"text {_a}", "numeric" if _name == "extract" else "float8", None)
_row(FUNCTIONS, "make_date", "int4 int4 int4", "date", "make_date({0}, {1}, {2})")
_row(FUNCTIONS, "age", "timestamp timestamp", "interval", None)
_row(FUNCTIONS, "age", "timestamptz timestamptz", "interval", None)

_TO_CHAR = {
    "YYYY": "yyyy", "MM": "MM", "DD": "dd", "HH24": "HH", "MI": "mm", "SS": "ss", "MS": "SSS", "US": "SSSSSS",
}  # fmt: skip


def _check_format(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Only patterns whose parts both servers write alike: to_char's to Spark's date_format."""
    rest, out = str(literal(args[1], "a format")), []
    while rest:
        token = next((t for t in _TO_CHAR if rest.startswith(t)), None)
        if token is None and (rest[0].isalnum() or rest[0] in "\"'\\"):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f'to_char format at "{rest}" is not supported')
        out.append(_TO_CHAR[token] if token else rest[0] if rest[0] in "-/:. ," else f"'{rest[0]}'")
        rest = rest[len(token) if token else 1 :]
    return (args[0], replace(_text_literal(args[1]), value="".join(out)))


_row(FUNCTIONS, "to_char", "timestamp text", "text", "date_format({0}, {1})", prepare=_check_format)
_row(FUNCTIONS, "to_char", "timestamptz text", "text", "date_format({0}, {1})", prepare=_check_format, zoned=True)
for _a in ("int4", "int8", "float4", "float8", "numeric", "interval"):
    _row(FUNCTIONS, "to_char", f"{_a} text", "text", None)

# -- aggregates -------------------------------------------------------------------------------------------------


def _aggregate(
    name: str,
    arguments: str,
    result: str,
    spark: str | Form | None,
    nulls: Nulls = Nulls.MAYBE,
    shape: Callable[[Sequence[Expression]], Shape] | None = None,
) -> None:
    _row(FUNCTIONS, name, arguments, result, spark, Kind.AGGREGATE, nulls, shape)


def _sum_shape(args: Sequence[Expression]) -> Shape:
    shape = shape_of(args[0])
    return Shape(min(shape.precision + 10, NUMERIC_PRECISION_MAX), shape.scale)


def _average_operation(args: Sequence[Expression]) -> decimals.Operation:
    return decimals.divide(_sum_shape(args), Shape(19, 0))


def _average(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """PostgreSQL's: the exact sum, divided once."""
    operation = _average_operation(args)
    return (
        f"(CAST(sum({{d}}CAST({texts[0]} AS {shape_of(args[0])})){{f}} AS {operation.left})"
        f" / CAST(nullif(count({{d}}{texts[0]}){{f}}, 0L) AS {operation.right}))"
    )


_aggregate("count", "", "int8", "count(1){f}", nulls=Nulls.NEVER)
_aggregate("count", "any", "int8", "count({d}{0}){f}", nulls=Nulls.NEVER)
for _a in _INTEGERS:
    _aggregate("avg", _a, "numeric", _average, shape=lambda args: _average_operation(args).result)
_aggregate("avg", "numeric", "numeric", _average, shape=lambda args: _average_operation(args).result)
_aggregate("avg", "float4", "float8", "avg({d}{0}){f}")
_aggregate("avg", "float8", "float8", "avg({d}{0}){f}")
_aggregate("avg", "interval", "interval", None)
_aggregate("sum", "int2", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int4", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int8", "numeric", "sum({d}CAST({0} AS DECIMAL(28,0))){f}", shape=_fixed(38))
_aggregate("sum", "numeric", "numeric", "sum({d}{0}){f}", shape=_sum_shape)
_aggregate("sum", "float4", "float4", None)
_aggregate("sum", "float8", "float8", "sum({d}{0}){f}")
_aggregate("sum", "interval", "interval", None)
for _name in ("min", "max"):
    for _a in ("int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "time", "timestamp",
               "timestamptz"):  # fmt: skip
        _aggregate(_name, _a, _a, f"{_name}({{0}}){{f}}", shape=_same_shape if _a == "numeric" else None)
    for _a in ("bpchar", "interval", "anyarray"):
        _aggregate(_name, _a, _a, None)
for _name, _spark in (("bool_and", "bool_and"), ("every", "bool_and"), ("bool_or", "bool_or")):
    _aggregate(_name, "bool", "bool", f"{_spark}({{0}}){{f}}")


# The order of a list without ORDER BY is the values' own: one canonical order, in a snapshot and in every tick.
# Not listagg: beside another DISTINCT it fails in Spark 4.3.
_aggregate("string_agg", "text text", "text", "array_join({a}, {1})")
_aggregate("array_agg", "anyelement", "anyarray", "{a}")
_aggregate("array_agg", "anyarray", "anyarray", None)
for _name in ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"):
    for _a in ("int2", "int4", "int8", "numeric", "float4", "float8"):
        _aggregate(_name, _a, "float8" if _a.startswith("float") else "numeric", None)

# -- window functions -------------------------------------------------------------------------------------------


def _window(name: str, arguments: str, result: str, spark: str, nulls: Nulls = Nulls.MAYBE) -> None:
    _row(FUNCTIONS, name, arguments, result, spark, Kind.WINDOW, nulls)


for _name in ("row_number", "rank", "dense_rank"):
    _window(_name, "", "int8", f"CAST({_name}(){{f}} AS BIGINT)", Nulls.NEVER)
for _name in ("percent_rank", "cume_dist"):
    _window(_name, "", "float8", f"{_name}(){{f}}", Nulls.NEVER)
_window("ntile", "int4", "int4", "ntile({0}){f}")
for _name in ("lag", "lead"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}")
    _window(_name, "anyelement int4", "anyelement", f"{_name}({{0}}, {{1}}){{f}}")
    _window(_name, "anyelement int4 anyelement", "anyelement", f"{_name}({{0}}, {{1}}, {{2}}){{f}}")
for _name in ("first_value", "last_value"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}")

# -- what has a syntax of its own -------------------------------------------------------------------------------


def _syntax(name: str, spark: str, nulls: Nulls = Nulls.STRICT, arguments: str = "any any") -> Function:
    return Function(name, _types(arguments), BOOL, spark, nulls=nulls)


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

# -- resolution -------------------------------------------------------------------------------------------------

_CATEGORIES: dict[str, str] = {
    "bool": "B",
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8"), "N"),
    **dict.fromkeys(("text", "varchar", "bpchar"), "S"),
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), "D"),
    "interval": "T",
    "unknown": "X",
}
_PREFERRED = frozenset(("bool", "float8", "text", "timestamptz", "interval"))


def category(type: PgType) -> str:
    """pg_type.typcategory."""
    return "A" if type.element is not None else _CATEGORIES.get(type.name, "U")


def is_preferred(type: PgType) -> bool:
    """pg_type.typispreferred."""
    return type.name in _PREFERRED


@dataclass(frozen=True, slots=True)
class Resolved:
    """The row chosen, and what it is for these arguments: pseudo-types replaced, a variadic tail spread."""

    function: Function
    arguments: tuple[PgType, ...]
    result: PgType


@cache
def resolve_function(name: str, types: tuple[PgType, ...]) -> Resolved | None:
    """The row for a call; None if none fits. 42725 if several fit and none is better. Types without modifiers."""
    return _choose(FUNCTIONS.get(name, ()), types, "function", f"{name}({', '.join(t.display for t in types)})")


@cache
def resolve_operator(name: str, types: tuple[PgType, ...]) -> Resolved | None:
    """As `resolve_function`; a prefix operator has one argument, LIKE with ESCAPE three."""
    rows = OPERATORS.get(name, [])
    known = tuple(type for type in types if type != UNKNOWN)
    if len(types) == 2 and len(known) == 1:
        same = known + known
        for row in rows:  # rule 2a: an unknown is first taken to be of the other's type
            if row.arguments == same:
                return Resolved(row, row.arguments, row.result)
    if name == "||" and len(types) == 2 and (plain := _concatenation(types)) is not None:
        return Resolved(rows[0], plain, rows[0].result)
    return _choose(rows, types, "operator", operator_text(name, types))


def _concatenation(types: tuple[PgType, ...]) -> tuple[PgType, ...] | None:
    """text || anything and anything || text write the other as text."""
    texts = [category(t) in ("S", "X") for t in types]
    others = [category(t) not in ("S", "A", "X") for t in types]
    return (TEXT, TEXT) if any(texts) and any(others) else None


def operator_text(name: str, types: Sequence[PgType]) -> str:
    """`integer + text` or `- text`, as messages write it."""
    shown = [t.display for t in types]
    return f"{name} {shown[0]}" if len(shown) == 1 else f"{shown[0]} {name} {shown[1]}"


def _choose(rows: Sequence[Function], types: tuple[PgType, ...], what: str, shown: str) -> Resolved | None:
    candidates = list(_applicable(rows, types))
    for exact in candidates:
        if exact.function.arguments == types:
            return exact
    if len(candidates) > 1:
        candidates = _best(candidates, types)
    if len(candidates) > 1:
        is_function = what == "function"
        raise PgError(
            SqlState.AMBIGUOUS_FUNCTION,
            f"{what} {shown} is not unique" if is_function else f"operator is not unique: {shown}",
            hint=f"Could not choose a best candidate {what}. You might need to add explicit type casts.",
        )
    return candidates[0] if candidates else None


def _applicable(rows: Sequence[Function], types: tuple[PgType, ...]) -> Iterator[Resolved]:
    """The rows whose arguments these types become by implicit casts."""
    for row in rows:
        arguments = row.arguments
        if row.variadic and len(types) > len(arguments):
            arguments += (arguments[-1],) * (len(types) - len(arguments))
        if len(arguments) != len(types):
            continue
        resolved = _without_pseudo(row, arguments, types)
        if resolved is not None and all(map(_implicit, types, resolved.arguments)):
            yield resolved


def _implicit(source: PgType, target: PgType) -> bool:
    if source in (target, UNKNOWN) or target == ANY:
        return True
    rule = find_cast(source, target)
    return rule is not None and rule.context is Coercion.IMPLICIT


def _without_pseudo(row: Function, arguments: tuple[PgType, ...], types: tuple[PgType, ...]) -> Resolved | None:
    """anyelement and anyarray replaced by what the arguments make of them; None if those disagree."""
    if ANYELEMENT not in arguments and ANYARRAY not in arguments:
        return Resolved(row, arguments, row.result)
    elements: set[PgType] = set()
    for argument, type in zip(arguments, types, strict=True):
        if type == UNKNOWN or argument not in (ANYELEMENT, ANYARRAY):
            continue
        if argument == ANYARRAY and type.element is None:
            return None
        elements.add(type.element if argument == ANYARRAY and type.element is not None else type)
    if not elements and ANYARRAY in arguments:
        return None
    if len(elements) > 1:
        return None
    element = elements.pop() if elements else TEXT
    if element.element is not None and (ANYARRAY in arguments or row.result == ANYARRAY):
        return None
    swap = {ANYELEMENT: element}
    if ANYARRAY in arguments or row.result == ANYARRAY:
        swap[ANYARRAY] = array_of(element)
    return Resolved(row, tuple(swap.get(a, a) for a in arguments), swap.get(row.result, row.result))


def _best(candidates: list[Resolved], types: tuple[PgType, ...]) -> list[Resolved]:
    """PostgreSQL's func_select_candidate: more exact matches, then preferred types, then guesses for unknowns."""
    known = [i for i, t in enumerate(types) if t != UNKNOWN]
    unknown = [i for i, t in enumerate(types) if t == UNKNOWN]

    def most(score: Callable[[Resolved], int]) -> list[Resolved]:
        top = max(map(score, candidates))
        return [c for c in candidates if score(c) == top]

    def declared(candidate: Resolved, place: int) -> PgType:
        arguments = candidate.function.arguments  # a pseudo-type is no exact match
        return arguments[min(place, len(arguments) - 1)]

    candidates = most(lambda c: sum(declared(c, i) == types[i] for i in known))
    if len(candidates) > 1:
        candidates = most(
            lambda c: sum(
                declared(c, i) == types[i]
                or (is_preferred(declared(c, i)) and category(declared(c, i)) == category(types[i]))
                for i in known
            )
        )
    for i in unknown if len(candidates) > 1 else ():
        categories = {category(c.arguments[i]) for c in candidates}
        if "S" not in categories and len(categories) > 1:
            break
        chosen = "S" if "S" in categories else categories.pop()
        inside = [c for c in candidates if category(c.arguments[i]) == chosen]
        preferred = [c for c in inside if is_preferred(c.arguments[i])]
        candidates = preferred or inside
    if len(candidates) > 1 and known and len({types[i] for i in known}) == 1:
        same = [c for c in candidates if all(_implicit(types[known[0]], a) for a in c.arguments)]
        exact = [c for c in same if all(c.arguments[i] == types[known[0]] for i in unknown)]
        candidates = exact or candidates
    return candidates


def no_such(what: str, shown: str, count: int, position: int | None) -> PgError:
    """42883: what = `function` or `operator`."""
    noun = "argument types" if count != 1 else "argument type" if what == "operator" else "argument types"
    casts = "explicit type casts" if noun.endswith("s") else "an explicit type cast"
    return PgError(
        SqlState.UNDEFINED_FUNCTION,
        f"function {shown} does not exist" if what == "function" else f"operator does not exist: {shown}",
        hint=f"No {what} matches the given name and {noun}. You might need to add {casts}.",
        position=position,
    )
