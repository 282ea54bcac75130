"""ONE table of the functions, operators, aggregates and window functions that Tidewire knows; this is its frame.

Each row: name, argument types, result type, and what computes it. `spark` is its form in Spark SQL, in which {0},
{1}, ... are the arguments, or Python that writes the text. `python` computes one value from Python scalars (as
protocol.pgwire.types lists them): it folds constants, and where there is no Spark form it is what Spark runs, in an
Arrow UDF (`worker`). With neither, PostgreSQL has the function and resolution must see it, but Tidewire refuses it
(0A000). What is not here does not exist (42883): nothing passes to Spark by its name alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, array_of, scalar
from server.sql.decimals import DIVISION_SCALE, Shape
from server.sql.expressions import Expression, Literal, precision

ANY = PgType("any", 2276, 4)  # any type, each argument its own
ANYELEMENT = PgType("anyelement", 2283, 4)  # any type, the same wherever it stands
ANYARRAY = PgType("anyarray", 2277, -1)  # an array of it
ANYCOMPATIBLE = PgType("anycompatible", 5077, 4)  # types that have a common one, which it becomes
ANYCOMPATIBLEARRAY = PgType("anycompatiblearray", 5078, -1)  # an array of that
_PSEUDO = {type.name: type for type in (ANY, ANYELEMENT, ANYARRAY, ANYCOMPATIBLE, ANYCOMPATIBLEARRAY)}
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
"""The symbols of comparison, and what each is in Python of values, or keys, that sort as PostgreSQL's do."""


class Kind(Enum):
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


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A row of the table; rows are compared by identity.

    `prepare` checks arguments when the query is planned and may replace them. `shape` gives a numeric result's.
    `zoned`: depends on the session's time zone, which `python` takes as the keyword `timezone`. `variadic`: the last
    argument may repeat. `python` never sees None if `nulls` is STRICT or OPTIONAL; it raises PgError.
    A form that writes "" has nothing for these arguments: `python` computes them.
    `typed`: `python` takes the types of the arguments as the keyword `types`. An aggregate's `python` gets a list for
    each argument, the values of the group's rows.
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
    python: Callable[..., Any] | None = None
    typed: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(type.display for type in self.arguments)})"

    def __reduce__(self) -> tuple[Callable[[str, str, int], Function], tuple[str, str, int]]:
        """Pickled by its place in the table: the Python that it names cannot be pickled."""
        for kind, table in TABLES.items():
            rows = table.get(self.name, ())
            if self in rows:
                return function_at, (kind, self.name, rows.index(self))
        raise TypeError(f"{self} is not in the table of functions")


FUNCTIONS: dict[str, list[Function]] = {}
OPERATORS: dict[str, list[Function]] = {}
GRAMMAR: dict[str, list[Function]] = {}
"""What the grammar and sorting need, which has no name to call it by."""
SET_ARRAYS: dict[str, list[Function]] = {}  # what `sets` needs: no name that a query can call
SYNTAX: dict[str, list[Function]] = {}
"""What `syntax` has that is computed by Python."""
TABLES = {"OPERATOR": OPERATORS, "SET": SET_ARRAYS, "GRAMMAR": GRAMMAR, "FUNCTION": FUNCTIONS, "SYNTAX": SYNTAX}


def function_at(kind: str, name: str, number: int) -> Function:
    return TABLES[kind][name][number]


def types_of(spelling: str) -> tuple[PgType, ...]:
    return tuple(map(_result, spelling.split()))


def _result(spelling: str) -> PgType:
    if spelling.endswith("[]"):
        return array_of(scalar(spelling[:-2]))
    return _PSEUDO.get(spelling) or scalar(spelling)


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
) -> None:
    """Adds a row to `table`; types by their names, `int4 text`."""
    table.setdefault(name, []).append(
        Function(
            *(name, types_of(arguments), _result(result), spark, kind, nulls, shape, prepare),
            *(variadic, zoned, python, typed),
        )
    )


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


def fitted(expression: Expression, text: str, shape: Shape) -> str:
    return text if shape_of(expression) == shape else f"CAST({text} AS {shape})"


def same_shape(args: Sequence[Expression]) -> Shape:
    return shape_of(args[0])


def fixed(digits: int, scale: int = 0) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: Shape(digits, scale)


def literal(argument: Expression, what: str) -> object:
    """The value of an argument that must be known when the query is planned."""
    if not isinstance(argument, Literal) or argument.value is None:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} that is not a constant is not supported")
    return argument.value


def exact_texts(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """For functions that write numbers as text: nobody knows how many decimals PostgreSQL's quotient would have."""
    for arg in args:
        type = arg.type.element or arg.type
        inexact = type.precision is None and ((type.scale or 0) >= DIVISION_SCALE or arg.type.element is not None)
        if type.name == "numeric" and inexact and not isinstance(arg, Literal):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "the text of a numeric without a declared scale is not supported",
                hint="Round it first, or cast it to numeric(precision, scale).",
            )
    return args


def guarded(condition: str, state: SqlState, message: str, form: str) -> str:
    return f"IF({condition}, {fail(state, message)}, {form})"


def once(text: str, form: Callable[[str], str]) -> str:
    """`form` of a name that stands for `text`, so that it is written and computed once."""
    if text.isidentifier():
        return form(text)
    return f"get(transform(array({text}), r -> {form('r')}), 0)"
