"""The single table of functions, operators, aggregates and window functions. This module defines its structure.

Each row has a name, argument types, a result type and an implementation. `spark` is the form in Spark SQL, in which
{0}, {1}, ... are the arguments, or a Python function that returns it. `python` computes one value from Python scalars
(as protocol.pgwire.types lists them): it folds constants, and without a Spark form Spark runs it in an Arrow UDF
(`worker`). A row with neither is a PostgreSQL function that takes part in resolution but is not supported (0A000).
A function without a row does not exist (42883): no call is passed to Spark by name alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import RECORD, RECORD_ARRAY, PgType, array_of, scalar
from server.sql.decimals import Shape
from server.sql.expressions import Expression, Literal, precision
from server.sql.infinities import converted, spark_converted

ANY = PgType("any", 2276, 4)  # any type, independently for each argument
ANYELEMENT = PgType("anyelement", 2283, 4)  # any type, the same for all such arguments
ANYARRAY = PgType("anyarray", 2277, -1)  # an array of anyelement
ANYENUM = PgType("anyenum", 3500, 4)  # an enumerated type, the same for all such arguments and anyelement
ANYCOMPATIBLE = PgType("anycompatible", 5077, 4)  # types with a common type, to which they are cast
ANYCOMPATIBLEARRAY = PgType("anycompatiblearray", 5078, -1)  # an array of anycompatible
_PSEUDO = {
    type.name: type
    for type in (RECORD, RECORD_ARRAY, ANY, ANYELEMENT, ANYENUM, ANYARRAY, ANYCOMPATIBLE, ANYCOMPATIBLEARRAY)
}
_INSTANTS = frozenset(("date", "timestamp", "timestamptz"))
POLYMORPHIC = (ANYELEMENT, ANYARRAY, ANYCOMPATIBLE, ANYCOMPATIBLEARRAY)
INTEGERS = ("int2", "int4", "int8")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparison operators, each as a Python function of values, or of keys with PostgreSQL's order."""


class Kind(Enum):
    """What a function computes from: the values of one row, the rows of a group, or those of a window."""

    SCALAR = "function"
    AGGREGATE = "aggregate"
    WINDOW = "window"


class Nulls(Enum):
    """When the result can be NULL."""

    STRICT = "if an argument is"
    OPTIONAL = "if an argument is, and sometimes else"
    MAYBE = "always possible"
    NEVER = "never"


Form = Callable[[Sequence[Expression], Sequence[str]], str]
"""Returns Spark SQL for a call, given its arguments and their Spark SQL."""


@dataclass(frozen=True, slots=True)
class Infinite:
    """A function's result if no argument is NULL and a date or timestamp among the arguments is infinite.

    `python` has the parameters of `Function.python`. `spark`: the form in Spark SQL, unless the function has none.
    """

    python: Callable[..., Any]
    spark: Form | None = None


LIKE_FINITE = Infinite(lambda *values, **keywords: None)
"""The forms of a function are right for infinite values, too."""


def same_infinity(position: int, source: str, result: str) -> Infinite:
    """The rule for a function whose result is the infinite argument at `position`, of type `source`, as a `result`."""
    from_type, to_type = scalar(source), scalar(result)
    return Infinite(
        lambda *values, **keywords: converted(values[position], to_type),
        lambda args, texts: spark_converted(from_type, to_type, texts[position]),
    )


def no_infinity(state: SqlState, message: str) -> Infinite:
    """The rule for a function that fails for infinite values."""

    def python(*values: Any, **keywords: Any) -> Any:
        raise PgError(state, message)

    return Infinite(python, lambda args, texts: fail(state, message))


FINITE_HINT = "Replace it before, for example by NULL: nullif(value, 'infinity')."


def refused_infinity(function: Function) -> PgError:
    """The error of a function without a rule for infinite values."""
    message = f"{function} of an infinite date or timestamp is not supported"
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=FINITE_HINT)


Dimensions = Callable[[Sequence[int]], int]
"""Returns the number of dimensions of a function's result, if it is an array, from those of the arguments: 0 for an
argument that is no array or whose type is not known. Raises PgError."""


def independent(given: Sequence[int]) -> int:
    """The rule for a function whose forms are right for arrays of any dimensions, and whose result is no array."""
    return 1


def flattened(given: Sequence[int]) -> int:
    """The rule for a function of the elements: it gets the array of one dimension that contains them all."""
    return 1


def same_dimensions(given: Sequence[int]) -> int:
    """The rule for a function whose arguments and result have the same number of dimensions. 0A000."""
    known = {count for count in given if count}
    if len(known) > 1:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"arrays of {' and '.join(map(str, sorted(known)))} dimensions in one column are not supported",
            hint="The number of dimensions is a part of the type.",
        )
    return max(known)


def refused_dimensions(function: Function) -> PgError:
    """The error of a function without a rule for arrays of several dimensions."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{function} of an array of more than one dimension is not supported",
        hint="Apply it to the elements, as unnest() returns them, or nest the arrays in a jsonb.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A row of the table: one function with given argument types. Rows are compared by identity."""

    name: str
    arguments: tuple[PgType, ...]
    result: PgType
    spark: str | Form | None
    """The call in Spark SQL, `{0}` being the first argument. None: only `python` computes it. A form that returns ""
    does not support the arguments, and `python` does.
    """
    kind: Kind = Kind.SCALAR
    nulls: Nulls = Nulls.STRICT
    shape: Callable[[Sequence[Expression]], Shape] | None = None
    """Computes the precision and scale of a numeric result from the arguments."""
    prepare: Callable[[tuple[Expression, ...]], tuple[Expression, ...]] | None = None
    """Checks the arguments when the query is planned, and may replace them."""
    variadic: bool = False
    """Whether the last argument may repeat."""
    zoned: bool = False
    """Whether the result depends on the session's time zone, which `python` gets as the keyword `timezone`."""
    python: Callable[..., Any] | None = None
    """Computes the result from Python values. Never gets None if `nulls` is STRICT or OPTIONAL. Raises PgError. For an
    aggregate, it gets one list per argument: the values of the group's rows.
    """
    typed: bool = False
    """Whether `python` gets the argument types as the keyword `types`."""
    infinite: Infinite | None = None
    """The rule for infinite dates and timestamps. None: they are an error, except in arguments of polymorphic types,
    because values of any type are only compared and moved.
    """
    dimensions: Dimensions | None = None
    """The rule for arrays of several dimensions. None: they are an error."""

    @property
    def guarded(self) -> tuple[int, ...]:
        """The positions of the arguments whose infinite values need the rule `infinite`."""
        if self.infinite is LIKE_FINITE or self.kind is not Kind.SCALAR:
            return ()
        return tuple(i for i, type in enumerate(self.arguments) if type.name in _INSTANTS)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(type.display for type in self.arguments)})"

    def __reduce__(self) -> tuple[Callable[[str, str, int], Function], tuple[str, str, int]]:
        """Pickled as a reference to its row: the functions in `python` cannot be pickled."""
        for kind, table in TABLES.items():
            rows = table.get(self.name, ())
            if self in rows:
                return function_at, (kind, self.name, rows.index(self))
        raise TypeError(f"{self} is not in the table of functions")


FUNCTIONS: dict[str, list[Function]] = {}
OPERATORS: dict[str, list[Function]] = {}
GRAMMAR: dict[str, list[Function]] = {}
"""Functions for grammar constructs and sorting; queries cannot call them by name."""
SET_ARRAYS: dict[str, list[Function]] = {}  # for `sets`; queries cannot call them by name
SYNTAX: dict[str, list[Function]] = {}
"""Constructs of `syntax` that are computed by Python."""
TABLES = {"OPERATOR": OPERATORS, "SET": SET_ARRAYS, "GRAMMAR": GRAMMAR, "FUNCTION": FUNCTIONS, "SYNTAX": SYNTAX}


def function_at(kind: str, name: str, number: int) -> Function:
    return TABLES[kind][name][number]


def types_of(spelling: str) -> tuple[PgType, ...]:
    return tuple(map(_result, spelling.split()))


def _result(spelling: str) -> PgType:
    if spelling.endswith("[]"):
        return list_of(_result(spelling[:-2]))
    return _PSEUDO.get(spelling) or scalar(spelling)


def list_of(type: PgType) -> PgType:
    """The type of a list of values, which may be arrays."""
    return array_of(type) if type.element is None else PgType(f"_{type.name}", 0, -1, element=type)


def row(
    table: dict[str, list[Function]],
    name: str,
    arguments: str,
    result: str,
    spark: str | Form | None = None,
    kind: Kind = Kind.SCALAR,
    nulls: Nulls = Nulls.STRICT,
    shape: Callable[[Sequence[Expression]], Shape] | None = None,
    prepare: Callable[[tuple[Expression, ...]], tuple[Expression, ...]] | None = None,
    variadic: bool = False,
    zoned: bool = False,
    python: Callable[..., Any] | None = None,
    typed: bool = False,
    infinite: Infinite | None = None,
    dimensions: Dimensions | None = None,
) -> None:
    """Adds a row to `table`. Types are given by name: `int4 text`. For the other parameters see `Function`."""
    table.setdefault(name, []).append(
        Function(
            name=name,
            arguments=types_of(arguments),
            result=_result(result),
            spark=spark,
            kind=kind,
            nulls=nulls,
            shape=shape,
            prepare=prepare,
            variadic=variadic,
            zoned=zoned,
            python=python,
            typed=typed,
            infinite=infinite,
            dimensions=dimensions,
        )
    )


# -- forms ------------------------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """A Spark string literal. Escapes backslashes, and `${`, which Spark would substitute."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def fail(state: SqlState, message: str) -> str:
    """Spark SQL that raises an error; `server.spark.errors` decodes its SQLSTATE and message."""
    return f"raise_error({quote(f'{state}:{message}')})"


def shape_of(expression: Expression) -> Shape:
    return Shape(precision(expression), expression.type.scale or 0)


def fitted(expression: Expression, text: str, shape: Shape) -> str:
    return text if shape_of(expression) == shape else f"CAST({text} AS {shape})"


def same_shape(args: Sequence[Expression]) -> Shape:
    return shape_of(args[0])


def fixed(digits: int, scale: int = 0) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: Shape(digits, scale)


def literal(argument: Expression, what: str) -> object:
    """The value of an argument that must be constant when the query is planned. Else PgError 0A000."""
    if not isinstance(argument, Literal) or argument.value is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{what} that is not a constant is not supported",
            hint="Write it as a literal or a parameter, or with CASE for each of its values.",
        )
    return argument.value


def guarded(condition: str, state: SqlState, message: str, form: str) -> str:
    return f"IF({condition}, {fail(state, message)}, {form})"


class Let(str):
    """The text of `form` applied to a variable that is bound to `value`."""

    value: str
    form: Callable[[str], str]


def let(text: str, form: Callable[[str], str], name: str = "r") -> str:
    """`form` applied to a variable bound to `text`, so that `text` is evaluated once.

    Spark interprets the lambda row by row. The renderer replaces a `Let` by a column where it can. `name`: of the
    variable; the text of `form` must not contain a variable of an enclosing lambda with the same name.
    """
    if text.isidentifier():
        return form(text)
    bound = Let(f"get(transform(array({text}), {name} -> {form(name)}), 0)")
    bound.value, bound.form = text, form
    return bound
