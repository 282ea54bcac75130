"""Window functions (chapter 9.22). All aggregates are window functions too."""

from __future__ import annotations

from collections.abc import Callable

from protocol.pgwire.errors import PgError, SqlState
from server.sql.expressions import Cast, Expression, Literal, Parameter
from server.sql.functions.table import (
    FUNCTIONS,
    Dimensions,
    Kind,
    Nulls,
    literal,
    row,
    same_dimensions,
)

Prepare = Callable[[tuple[Expression, ...]], tuple[Expression, ...]]


def _window(
    name: str,
    arguments: str,
    result: str,
    spark: str,
    nulls: Nulls = Nulls.MAYBE,
    prepare: Prepare | None = None,
    dimensions: Dimensions | None = None,
) -> None:
    row(FUNCTIONS, name, arguments, result, spark, Kind.WINDOW, nulls, prepare=prepare, dimensions=dimensions)


def _positive(index: int, what: str, state: SqlState) -> Prepare:
    """A `prepare` that requires the argument at `index` to be a constant or a parameter greater than zero."""

    def prepare(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
        value = _constant(args[index], f"an {what}")
        if value is not None and value <= 0:
            raise PgError(state, f"{what} must be greater than zero")
        return args

    return prepare


def _constant(argument: Expression, what: str) -> int | None:
    """The value of a constant. None for a parameter that is not bound yet: the call is prepared again when it is."""
    argument = argument.operand if isinstance(argument, Cast) else argument
    if isinstance(argument, Parameter):
        return None
    value = literal(argument, what)
    assert isinstance(value, int)
    return value


def frame_offset(value: int | None, what: str, position: int | None = None) -> str:
    """The offset of a frame's bound, as Spark SQL. `what`: starting or ending. 22004 for NULL, 22013 below zero."""
    if value is None:
        message = f"frame {what} offset must not be null"
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, message, position=position)
    if value < 0:
        message = f"frame {what} offset must not be negative"
        raise PgError(SqlState.INVALID_PRECEDING_OR_FOLLOWING_SIZE, message, position=position)
    return str(value) if value < 1 << 31 else "UNBOUNDED"


def _known_offset(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Spark requires a constant. It is clamped to 32 bits, which exceeds the distance of any row."""
    value = _constant(args[1], "an offset of lag or lead")
    if value is None:
        return args
    bound = (1 << 31) - 1
    return (args[0], Literal(min(max(value, -bound), bound), args[1].type), *args[2:])


for _name in ("row_number", "rank", "dense_rank"):
    _window(_name, "", "int8", f"CAST({_name}(){{f}} AS BIGINT)", Nulls.NEVER)
for _name in ("percent_rank", "cume_dist"):
    _window(_name, "", "float8", f"{_name}(){{f}}", Nulls.NEVER)
_window("ntile", "int4", "int4", "ntile({0}){f}",
        prepare=_positive(0, "argument of ntile", SqlState.INVALID_ARGUMENT_FOR_NTILE_FUNCTION))  # fmt: skip
for _name in ("lag", "lead"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}", dimensions=same_dimensions)
    _window(_name, "anyelement int4", "anyelement", f"{_name}({{0}}, {{1}}){{f}}", prepare=_known_offset,
            dimensions=same_dimensions)  # fmt: skip
    _window(_name, "anycompatible int4 anycompatible", "anycompatible", f"{_name}({{0}}, {{1}}, {{2}}){{f}}",
            prepare=_known_offset, dimensions=same_dimensions)  # fmt: skip
for _name in ("first_value", "last_value"):
    _window(_name, "anyelement", "anyelement", f"{_name}({{0}}){{f}}", dimensions=same_dimensions)
_window("nth_value", "anyelement int4", "anyelement", "nth_value({0}, {1}){f}",
        prepare=_positive(1, "argument of nth_value", SqlState.INVALID_ARGUMENT_FOR_NTH_VALUE_FUNCTION),
        dimensions=same_dimensions)  # fmt: skip
