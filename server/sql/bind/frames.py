"""Window frames, as Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    FLOAT8,
    INT8,
    INTERVAL,
    NUMERIC,
    NUMERIC_PRECISION_MAX,
    TIMESTAMP,
    TIMESTAMPTZ,
    numeric,
)
from server.sql.bind.binder import Binder
from server.sql.coerce import ASSIGNMENT
from server.sql.expressions import Aggregate, Cast, Expression, Literal, Parameter, SortKey, WindowCall
from server.sql.functions.table import FUNCTIONS, Kind
from server.sql.functions.windows import frame_offset
from server.sql.scope import Scope


@dataclass(frozen=True, slots=True)
class Frame:
    """`kind`: ROWS, RANGE or GROUPS. The bounds are Spark SQL. `excluded`: CURRENT ROW, GROUP or TIES.

    `offsets`: as in `WindowCall`.
    """

    kind: str
    start: str
    end: str
    excluded: str
    offsets: tuple[Expression, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} BETWEEN {self.start} AND {self.end}"

    @property
    def is_plain(self) -> bool:
        """Whether Spark has the frame: it excludes nothing, and does not end before it starts."""
        return not self.excluded and not _is_backwards(self.start, self.end)


def frame_of(
    binder: Binder, spec: exp.Expr | None, call: Aggregate, order: tuple[SortKey, ...], tree: exp.Expr
) -> tuple[Frame | None, tuple[SortKey, ...]]:
    """The frame, None for the default one, and the order it requires. 42P20; 0A000 if Spark has no such frame."""
    if spec is None:
        return None, order
    kind = spec.args["kind"].upper()
    offsets: list[Expression] = []
    bounds = [
        _frame_bound(binder, spec, side, kind, order, tree, offsets)
        if spec.args.get(side) is not None
        else "CURRENT ROW"
        for side in ("start", "end")
    ]
    _check_frame(binder, bounds[0], bounds[1], tree)
    if kind == "GROUPS" and not order:
        message = "GROUPS mode requires an ORDER BY clause"
        raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(tree))
    if kind == "RANGE" and any(bound[0].isdigit() or bound.startswith(("CAST", "INTERVAL")) for bound in bounds):
        order = (replace(order[0], expression=_ranged(order[0].expression)),)
    if call.function.kind is Kind.WINDOW and not call.function.name.endswith("_value"):
        return None, order  # these functions ignore the frame
    exclude = spec.args.get("exclude")
    excluded = "" if exclude is None or exclude.name.upper() == "NO OTHERS" else exclude.name.upper()
    if kind == "RANGE" and not order and not excluded:
        return None, order  # all rows are peers
    if any("MONTH" in bound for bound in bounds) and any("DAY" in bound for bound in bounds):
        raise binder.unsupported(
            "RANGE with an offset of months and one of days", tree, hint="Use the same unit in both bounds."
        )
    if offsets and excluded:
        raise _not_constant(binder, tree)
    return Frame(kind, bounds[0], bounds[1], excluded, tuple(offsets)), order


def _not_constant(binder: Binder, tree: exp.Expr) -> PgError:
    hint = "Write the offset as a literal, or as a parameter in mode ROWS without EXCLUDE."
    return binder.unsupported("a window frame whose offset is not a constant", tree, hint=hint)


def _check_frame(binder: Binder, start: str, end: str, tree: exp.Expr) -> None:
    fault = None
    if start == "UNBOUNDED FOLLOWING":
        fault = "frame start cannot be UNBOUNDED FOLLOWING"
    elif end == "UNBOUNDED PRECEDING":
        fault = "frame end cannot be UNBOUNDED PRECEDING"
    elif start == "CURRENT ROW" and end.endswith("PRECEDING"):
        fault = "frame starting from current row cannot have preceding rows"
    elif start.endswith("FOLLOWING") and not end.endswith("FOLLOWING"):
        fault = "frame starting from following row cannot have preceding rows"
    if fault is not None:
        raise PgError(SqlState.WINDOWING_ERROR, fault, position=binder.at(tree))


def _frame_bound(
    binder: Binder,
    spec: exp.Expr,
    side: str,
    kind: str,
    order: tuple[SortKey, ...],
    tree: exp.Expr,
    offsets: list[Expression],
) -> str:
    """UNBOUNDED PRECEDING, CURRENT ROW, 3 FOLLOWING, ... as Spark SQL. A parameter is added to `offsets`."""
    bound = spec.args[side]
    direction = (spec.args.get(f"{side}_side") or "").upper()
    if isinstance(bound, str):
        return f"{bound.upper()} {direction}".strip()
    if direction not in ("PRECEDING", "FOLLOWING"):
        raise PgError(SqlState.SYNTAX_ERROR, "frame offset without PRECEDING or FOLLOWING", position=binder.at(tree))
    offset = binder.expression(bound, Scope())
    if kind == "RANGE":
        if len(order) != 1:
            message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
            raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(tree))
        offset = _range_offset(binder, offset, order[0].expression, tree)
    else:
        try:
            offset = binder.coerce(offset, INT8, ASSIGNMENT)
        except PgError as error:
            if error.sqlstate is not SqlState.CANNOT_COERCE:
                raise
            message = f"argument of {kind} must be type bigint, not type {offset.type.base_display}"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(bound)) from None
    what = "starting" if side == "start" else "ending"
    if not isinstance(offset, Literal):
        if kind != "ROWS" or not isinstance(offset.operand if isinstance(offset, Cast) else offset, Parameter):
            raise _not_constant(binder, tree)
        offsets.append(offset)
        return f"{{{len(offsets) - 1}}} {direction}"
    if kind != "RANGE" or offset.value is None:
        return f"{frame_offset(offset.value, what, binder.at(bound))} {direction}"
    if any(part < 0 for part in (offset.value if offset.type == INTERVAL else (offset.value,))):
        message = "invalid preceding or following size in window function"
        raise PgError(SqlState.INVALID_PRECEDING_OR_FOLLOWING_SIZE, message, position=binder.at(bound))
    return f"{_range_text(binder, offset, order[0].expression, tree)} {direction}"


def _range_offset(binder: Binder, offset: Expression, key: Expression, tree: exp.Expr) -> Expression:
    """The offset, cast to the type that matches the sort key's type."""
    name = key.type.name
    if key.type.is_numeric_family:
        wanted = FLOAT8 if name.startswith("float") else NUMERIC if name == "numeric" else INT8
    elif name in ("date", "timestamp", "timestamptz"):
        wanted = INTERVAL
    else:
        raise binder.unsupported(
            f"RANGE with offset PRECEDING/FOLLOWING for column type {key.type.display}",
            tree,
            hint="Order by a number, a date or a timestamp, or use ROWS or GROUPS.",
        )
    try:
        return binder.coerce(offset, wanted)
    except PgError as error:
        if error.sqlstate is not SqlState.CANNOT_COERCE:
            raise
        raise binder.unsupported(
            f"RANGE with offset PRECEDING/FOLLOWING for column type {key.type.base_display} "
            f"and offset type {offset.type.base_display}",
            tree,
            hint="Cast the column and the offset to the same type.",
        ) from None


def _range_text(binder: Binder, offset: Literal, key: Expression, tree: exp.Expr) -> str:
    if offset.type == INTERVAL:
        months, days, nanoseconds = offset.value
        if key.type == TIMESTAMPTZ and not binder.is_utc:
            raise binder.unsupported(
                "RANGE over timestamp with time zone outside UTC",
                tree,
                hint="Use SET TimeZone = 'UTC', or order by a timestamp: k AT TIME ZONE 'UTC'.",
            )
        if months and (days or nanoseconds):
            raise binder.unsupported(
                "RANGE with an offset of months and days", tree, hint="Use an offset of months, or one of days."
            )
        if months:
            return f"INTERVAL '{months}' MONTH"
        seconds, us = divmod(nanoseconds // 1000, 1_000_000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{days + hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{us:06}"
        return f"INTERVAL '{clock}' DAY TO SECOND"
    if offset.type == FLOAT8:
        if offset.value - offset.value != 0:
            raise binder.unsupported(
                "RANGE with an infinite offset", tree, hint="Use UNBOUNDED PRECEDING or UNBOUNDED FOLLOWING."
            )
        return f"CAST('{offset.value!r}' AS DOUBLE)"
    target = _ranged(key).type
    if target == INT8:
        return f"CAST({min(offset.value, 1 << 61)} AS BIGINT)"
    scale = target.scale or 0
    value = Decimal(offset.value)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > scale:
        raise binder.unsupported(
            "RANGE with an offset of more decimals than the column",
            tree,
            hint="Cast the column to a numeric with the decimals of the offset.",
        )
    return f"CAST('{value:f}' AS DECIMAL({target.precision},{scale}))"


def _is_backwards(start: str, end: str) -> bool:
    """Whether a frame of rows or groups ends before it starts, as from 2 PRECEDING to 3 PRECEDING."""
    first, last = (int(bound.split()[0]) if bound[0].isdigit() else None for bound in (start, end))
    if first is None or last is None or start.split()[1] != end.split()[1]:
        return False
    return first < last if start.endswith("PRECEDING") else first > last


def _ranged(key: Expression) -> Expression:
    """The sort key of a RANGE with an offset, cast to a type in which adding the offset does not overflow."""
    targets = {"int2": INT8, "int4": INT8, "int8": numeric(21), "float4": FLOAT8, "date": TIMESTAMP}
    if key.type.name == "numeric":
        return Cast(key, numeric(NUMERIC_PRECISION_MAX, key.type.scale or 0))
    target = targets.get(key.type.name)
    return key if target is None else Cast(key, target)


def over_groups(
    frame: str, partition: tuple[Expression, ...], order: tuple[SortKey, ...]
) -> tuple[str, tuple[SortKey, ...]]:
    """A frame in mode GROUPS, which Spark lacks, as one in mode RANGE over dense_rank(), the number of a group."""
    (rank,) = FUNCTIONS["dense_rank"]
    number = WindowCall(Aggregate(rank, (), INT8, False), partition, order, "")
    return f"RANGE{frame.removeprefix('GROUPS')}", (SortKey(number, False, False),)
