"""Window frames with EXCLUDE, which Spark does not have, and frames without rows.

The rows of such a frame are those of up to four frames of Spark that do not overlap. The call is computed for each, and
the results are merged:

    sum(x) OVER (ORDER BY k EXCLUDE CURRENT ROW)    the sums over the groups before k, over the other rows with k, and
                                                    over the groups after k
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import BOOL, FLOAT8, INT8, NUMERIC, PgType
from server.sql.bind.binder import Binder
from server.sql.bind.calls import apply, call_of, operator, plain_types
from server.sql.bind.conditionals import same_type
from server.sql.bind.frames import Frame, over_groups
from server.sql.bind.keys import groupable
from server.sql.expressions import Aggregate, Call, Case, Cast, Expression, Literal, SortKey, WindowCall
from server.sql.functions import resolve, syntax
from server.sql.functions.aggregates import COUNT_ROWS, IN_WINDOW

_HINT = "Compute the aggregate over the whole frame, and subtract the rows to be excluded."
_MERGED_BY_OPERATOR = {"sum": "+", "bit_and": "&", "bit_or": "|", "bit_xor": "#"}
_CURRENT = "ROWS BETWEEN CURRENT ROW AND CURRENT ROW"
_BEFORE = "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_AFTER = "BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"

Merge = Callable[[Expression, Expression], Expression]


@dataclass(frozen=True, slots=True)
class _Part:
    """A frame of Spark. `key`: it has no rows if this sort key is NULL."""

    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: str
    key: Expression | None = None


def over_parts(
    binder: Binder,
    call: Aggregate,
    partition: tuple[Expression, ...],
    order: tuple[SortKey, ...],
    frame: Frame,
    ranged: tuple[SortKey, ...],
    tree: exp.Expr,
) -> Expression:
    """The value of a call over a frame with EXCLUDE, or without rows. 0A000 for frames and calls without a rule.

    `order` is the window's, `ranged` the order that the offsets of a frame in mode RANGE require.
    """
    parts = _Frames(binder, partition, order, frame, ranged, tree).parts()
    return _Merger(binder, call, parts, tree).value()


# -- the frames -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frames:
    """The frames of Spark for a frame: see `over_parts`."""

    binder: Binder
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: Frame
    ranged: tuple[SortKey, ...]
    tree: exp.Expr

    def parts(self) -> list[_Part]:
        """The frames whose rows together are those of `frame`, in the order of the rows."""
        frame = self.frame
        first, last = _place(frame.start), _place(frame.end)
        is_value = frame.kind == "RANGE" and any(abs(place) not in (0, math.inf) for place in (first, last))
        if not is_value and first > last:
            return []
        if not first <= 0 <= last:  # the current row and its peers are not in the frame
            if is_value and self.order[0].expression.nullable:
                raise self._unsupported("EXCLUDE in this frame over a sort key that may be NULL")
            if frame.kind == "GROUPS":
                return [self._groups(str(frame))]
            return [_Part(self.partition, self.ranged, str(frame))]
        if frame.kind == "ROWS" and frame.excluded == "CURRENT ROW":
            before = [self._rows(f"{frame.start} AND 1 PRECEDING")] if first < 0 else []
            return before + ([self._rows(f"1 FOLLOWING AND {frame.end}")] if last > 0 else [])
        if frame.kind == "ROWS" and {first, last} - {0, math.inf, -math.inf}:
            raise self._unsupported(f"EXCLUDE {frame.excluded} in mode ROWS with an offset")
        found: list[_Part] = []
        if first < 0 and self.order:
            found.append(self._side(is_before=True))
        found += self._peers()
        if last > 0 and self.order:
            found.append(self._side(is_before=False))
        return found

    def _unsupported(self, what: str) -> PgError:
        return self.binder.unsupported(what, self.tree, hint=_HINT)

    def _rows(self, between: str) -> _Part:
        return _Part(self.partition, self.order, f"ROWS BETWEEN {between}")

    def _groups(self, frame: str) -> _Part:
        text, numbers = over_groups(frame, self.partition, self.order)
        return _Part(self.partition, numbers, text)

    def _peers(self) -> list[_Part]:
        """The rows of the current group that are not excluded."""
        if self.frame.excluded == "GROUP":
            return []
        if self.frame.excluded == "TIES":
            return [_Part(self.partition, self.order, _CURRENT)]
        for key in self.order:
            groupable(self.binder, key.expression, self.tree)
        same = (*self.partition, *(key.expression for key in self.order if key.expression not in self.partition))
        return [_Part(same, self.order, f"ROWS {side}") for side in (_BEFORE, _AFTER)]

    def _side(self, *, is_before: bool) -> _Part:
        """The groups of the frame before, or after, the current one."""
        frame = self.frame
        bound = frame.start if is_before else frame.end
        if bound.startswith("UNBOUNDED") or frame.kind == "ROWS":
            return self._groups(f"GROUPS {_BEFORE if is_before else _AFTER}")
        if frame.kind == "RANGE":
            unit = self._unit(bound)
            text = f"{bound} AND {unit} PRECEDING" if is_before else f"{unit} FOLLOWING AND {bound}"
            return _Part(self.partition, self.ranged, f"RANGE BETWEEN {text}", self.order[0].expression)
        between = f"{bound} AND 1 PRECEDING" if is_before else f"1 FOLLOWING AND {bound}"
        return self._groups(f"GROUPS BETWEEN {between}")

    def _unit(self, bound: str) -> str:
        """The least difference between two values of the sort key, as Spark SQL. 0A000 if there is none."""
        type = self.ranged[0].expression.type
        if type == INT8:
            return "CAST(1 AS BIGINT)"
        if type.name == "numeric":
            return f"CAST('1e-{type.scale or 0}' AS DECIMAL({type.precision or 38},{type.scale or 0}))"
        if type.name in ("timestamp", "timestamptz") and "MONTH" not in bound:
            return "INTERVAL '0 00:00:00.000001' DAY TO SECOND"
        raise self._unsupported("EXCLUDE in mode RANGE with an offset of this type")


def _place(bound: str) -> float:
    """The distance of a bound from the current row or group; in mode RANGE only its sign is exact."""
    if bound == "CURRENT ROW":
        return 0
    sign = -1 if bound.endswith("PRECEDING") else 1
    if bound.startswith("UNBOUNDED"):
        return sign * math.inf
    if bound[0].isdigit():
        return sign * int(bound.split()[0])
    written = bound.split("'")[1] if "'" in bound else bound.split()[0]  # CAST('1.5' ..., INTERVAL '1' ..., CAST(1 ...
    return sign if re.search("[1-9]", written) else 0


# -- the values -------------------------------------------------------------------------------------------------------


class _Merger:
    """The value of a call over the rows of several frames."""

    def __init__(self, binder: Binder, call: Aggregate, parts: Sequence[_Part], tree: exp.Expr) -> None:
        self._binder, self._call, self._parts, self._tree = binder, call, parts, tree

    def value(self) -> Expression:
        name = self._call.function.name
        if not self._parts:
            return Literal(0, INT8) if name in ("count", "regr_count") else Literal(None, self._call.type)
        if len(self._parts) == 1:
            return self._over(self._call, self._parts[0])
        return self._typed(self._merged(name), self._call.type)

    def _merged(self, name: str) -> Expression:
        if name == "count":
            return self._counts()
        if name == "avg":
            return self._average()
        if name in ("min", "max"):
            values = [self._over(self._call, part) for part in self._parts]
            return same_type(self._binder, "least" if name == "min" else "greatest", values, self._tree)
        if name in ("first_value", "last_value", "any_value"):
            return self._first(self._parts if name != "last_value" else list(reversed(self._parts)))
        merge = self._merge_of(name)
        return self._of_present([self._over(self._call, part) for part in self._parts], merge)

    def _merge_of(self, name: str) -> Merge:
        """The function of two results that are not NULL."""
        binder, tree = self._binder, self._tree
        if name in _MERGED_BY_OPERATOR:
            return lambda a, b: operator(binder, _MERGED_BY_OPERATOR[name], [a, b], None)
        if name in ("bool_and", "every", "bool_or"):
            word = syntax.OR if name == "bool_or" else syntax.AND
            return lambda a, b: Call(word, (a, b), BOOL, True)
        if name == "array_agg":
            return lambda a, b: apply(binder, "array_cat", [a, b], tree)
        if name == "string_agg" and isinstance(separator := self._call.arguments[1], Literal):
            return lambda a, b: apply(binder, "concat", [a, separator, b], tree)
        raise binder.unsupported(f"{name} over a window frame with EXCLUDE", tree, hint=_HINT)

    def _of_present(self, values: Sequence[Expression], merge: Merge) -> Expression:
        """The results merged, without those that are NULL."""

        def both(a: Expression, b: Expression) -> Expression:
            type = a.type
            nulls = [Call(syntax.IS_NULL, (side,), BOOL, False) for side in (a, b)]
            return Case(((nulls[0], b), (nulls[1], a)), self._typed(merge(a, b), type), type)

        return reduce(both, values)

    def _counts(self, call: Aggregate | None = None) -> Expression:
        counts = [self._over(call or self._call, part) for part in self._parts]
        return reduce(lambda a, b: operator(self._binder, "+", [a, b], None), counts)

    def _average(self) -> Expression:
        """The sum of all parts, divided by their count."""
        (argument,) = self._call.arguments
        if argument.type.name == "float4":
            argument = Cast(argument, FLOAT8)
        sums = [self._over(self._other("sum", argument), part) for part in self._parts]
        total = self._of_present(sums, self._merge_of("sum"))
        count = self._counts(self._other("count", argument))
        is_exact = argument.type.name in ("int2", "int4", "int8", "numeric")
        number = self._binder.coerce(count, NUMERIC if is_exact else FLOAT8)
        if is_exact:
            total = self._binder.coerce(total, NUMERIC)
        none = operator(self._binder, "=", [count, Literal(0, INT8)], None)
        mean = self._typed(operator(self._binder, "/", [total, number], None), self._call.type)
        return Case(((none, Literal(None, self._call.type)),), mean, self._call.type)

    def _first(self, parts: Sequence[_Part]) -> Expression:
        """The value of the first part that has rows."""
        rows = Aggregate(COUNT_ROWS, (), INT8, False, filter=self._call.filter)
        branches = []
        for part in parts:
            has_rows = operator(self._binder, ">", [self._over(rows, part), Literal(0, INT8)], None)
            branches.append((has_rows, self._over(self._call, part)))
        return Case(tuple(branches), Literal(None, self._call.type), self._call.type)

    def _other(self, name: str, argument: Expression) -> Aggregate:
        """Another aggregate over the rows of the call."""
        resolved = resolve.resolve_function(name, plain_types((argument.type.without_modifiers,)))
        assert resolved is not None
        made = call_of(resolved.function, (argument,), resolved.result)
        function = IN_WINDOW.get(made.function, made.function)
        return Aggregate(function, (argument,), made.type, True, made.precision, filter=self._call.filter)

    def _over(self, call: Aggregate, part: _Part) -> Expression:
        value = WindowCall(call, part.partition, part.order, part.frame, self._binder.at(self._tree))
        if part.key is None:
            return value
        absent = Call(syntax.IS_NULL, (part.key,), BOOL, False)
        nothing = Literal(0 if call.function.name == "count" else None, call.type)
        return Case(((absent, nothing),), value, call.type)

    @staticmethod
    def _typed(value: Expression, type: PgType) -> Expression:
        """A numeric cast to the scale of the call's type."""
        return value if value.type == type or type.name not in ("numeric", "float4") else Cast(value, type)
