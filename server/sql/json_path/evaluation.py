"""The evaluation of JSON paths over values as `loaded_jsonb` returns them (PostgreSQL's jsonpath_exec.c).

`Evaluation.items` yields the items lazily and in PostgreSQL's order, so a caller that needs only the first one stops
there, and an error behind it is not raised. An error of the path is a `PathError`, which a silent call suppresses.
Errors that PostgreSQL raises even then are other PgErrors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation
from typing import Any, assert_never

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import FLOAT8
from server.sql.decimals import division_scale
from server.sql.json_path.datetimes import Moment, compared, moment
from server.sql.json_path.tree import (
    LAST,
    Accessor,
    AnyElement,
    AnyLevel,
    AnyMember,
    Binary,
    Chain,
    Comparison,
    Current,
    Exists,
    Filter,
    IsUnknown,
    Last,
    LikeRegex,
    Logical,
    Member,
    Method,
    Negation,
    Node,
    Path,
    Root,
    StartsWith,
    Subscripts,
    Unary,
    Value,
    Variable,
)
from server.sql.regex.regex import compiled

_EXACT = Context(prec=40_000, Emax=999_999, Emin=-999_999)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_KINDS = {type(None): "null", bool: "boolean", Decimal: "number", str: "string", list: "array", dict: "object"}


class PathError(PgError):
    """An error that a silent call suppresses."""


class Evaluation:
    """One evaluation of a path over `document`."""

    def __init__(self, path: Path, document: Any, variables: Mapping[str, Any], timezone: str | None = None) -> None:
        """`timezone`: the session's, if the function uses it to compare datetimes."""
        self._path, self._timezone = path, timezone
        self._lax = self._tolerant = path.is_lax
        """`_tolerant`: a member or an element that does not exist is no error. In lax mode and below `**`."""
        self._document, self._variables = document, variables
        self._current = document
        self._sizes: list[int] = []

    def items(self) -> Iterator[Any]:
        """The items that the path selects, in order. Raises PathError."""
        return self._items(self._path.root, self._document)

    def has_items(self) -> bool:
        """Whether the path selects an item. In strict mode all items are computed, because one may be an error."""
        if not self._path.is_lax:
            return bool(list(self.items()))
        return any(True for _ in self.items())

    # -- items ----------------------------------------------------------------------------------------------------

    def _items(self, node: Node, item: Any) -> Iterator[Any]:
        match node:
            case Value(value=value):
                yield value
            case Root():
                yield self._document
            case Current():
                yield self._current
            case Last():
                yield Decimal(self._sizes[-1] - 1)
            case Variable(name=name):
                if name not in self._variables:
                    raise PgError(SqlState.UNDEFINED_OBJECT, f'could not find jsonpath variable "{name}"')
                yield self._variables[name]
            case Chain(start=start, accessors=accessors):
                for found in self._items(start, item):
                    yield from self._accessed(found, accessors, self._lax)
            case Unary():
                yield from self._signed(node, item)
            case Binary():
                yield self._computed(node, item)
            case Logical() | Negation() | IsUnknown() | Comparison() | Exists() | StartsWith() | LikeRegex():
                yield self._truth(node, item)
            case _:
                assert_never(node)

    def _unwrapped(self, node: Node, item: Any) -> Iterator[Any]:
        """The items, in lax mode with the elements of arrays in place of the arrays."""
        for found in self._items(node, item):
            if self._lax and isinstance(found, list):
                yield from found
            else:
                yield found

    def _accessed(self, item: Any, accessors: tuple[Accessor, ...], unwraps: bool) -> Iterator[Any]:
        """`item` after all accessors. `unwraps`: the first one applies to the elements of an array."""
        if not accessors:
            yield item
            return
        first, rest = accessors[0], accessors[1:]
        if unwraps and isinstance(item, list) and self._takes_elements(first):
            for element in item:
                yield from self._accessed(element, accessors, False)
            return
        match first:
            case Member(key=key):
                if isinstance(item, dict) and key in item:
                    yield from self._accessed(item[key], rest, self._lax)
                elif not self._tolerant:
                    raise PathError(
                        SqlState.SQL_JSON_MEMBER_NOT_FOUND,
                        f'JSON object does not contain key "{key}"'
                        if isinstance(item, dict)
                        else "jsonpath member accessor can only be applied to an object",
                    )
            case AnyMember():
                if isinstance(item, dict):
                    for key in _stored_order(item):
                        yield from self._accessed(item[key], rest, self._lax)
                elif not self._tolerant:
                    message = "jsonpath wildcard member accessor can only be applied to an object"
                    raise PathError(SqlState.SQL_JSON_OBJECT_NOT_FOUND, message)
            case AnyElement():
                if isinstance(item, list):
                    for element in item:
                        yield from self._accessed(element, rest, self._lax)
                elif self._lax:
                    yield from self._accessed(item, rest, self._lax)
                elif not self._tolerant:
                    message = "jsonpath wildcard array accessor can only be applied to an array"
                    raise PathError(SqlState.SQL_JSON_ARRAY_NOT_FOUND, message)
            case Subscripts():
                for element in self._elements(first, item):
                    yield from self._accessed(element, rest, self._lax)
            case AnyLevel(first=low, last=high):
                for found in _descendants(item, low, high, 0):
                    before, self._tolerant = self._tolerant, True
                    try:
                        selected = list(self._accessed(found, rest, self._lax))
                    finally:
                        self._tolerant = before
                    yield from selected
            case Filter(predicate=predicate):
                before_current, self._current = self._current, item
                try:
                    is_true = self._truth(predicate, item) is True
                finally:
                    self._current = before_current
                if is_true:
                    yield from self._accessed(item, rest, self._lax)
            case Method(name=name):
                for result in self._method(name, item):
                    yield from self._accessed(result, rest, self._lax)
            case _:
                assert_never(first)

    @staticmethod
    def _takes_elements(accessor: Accessor) -> bool:
        """Whether lax mode applies an accessor to the elements of an array in place of the array."""
        if isinstance(accessor, Method):
            return accessor.name not in ("type", "size")
        return isinstance(accessor, (Member, AnyMember, Filter))

    def _elements(self, subscripts: Subscripts, item: Any) -> Iterator[Any]:
        if not isinstance(item, list):
            if not self._lax:
                if self._tolerant:
                    return
                message = "jsonpath array accessor can only be applied to an array"
                raise PathError(SqlState.SQL_JSON_ARRAY_NOT_FOUND, message)
            item = [item]
        for low, high in subscripts.ranges:
            self._sizes.append(len(item))
            try:
                first = self._subscript(low, item)
                last = first if high is None else self._subscript(high, item)
            finally:
                self._sizes.pop()
            if not self._tolerant and (first < 0 or first > last or last >= len(item)):
                message = "jsonpath array subscript is out of bounds"
                raise PathError(SqlState.INVALID_SQL_JSON_SUBSCRIPT, message)
            yield from item[max(first, 0) : max(last + 1, 0)]

    def _subscript(self, node: Node, item: Any) -> int:
        found = list(self._items(node, item))
        if len(found) != 1 or not isinstance(found[0], Decimal):
            message = "jsonpath array subscript is not a single numeric value"
            raise PathError(SqlState.INVALID_SQL_JSON_SUBSCRIPT, message)
        index = int(found[0])  # truncated
        if not -(1 << 31) <= index < 1 << 31:
            message = "jsonpath array subscript is out of integer range"
            raise PathError(SqlState.INVALID_SQL_JSON_SUBSCRIPT, message)
        return index

    def _method(self, name: str, item: Any) -> Iterator[Any]:
        match name:
            case "type":
                yield item.name if isinstance(item, Moment) else _KINDS[type(item)]
            case "size":
                if isinstance(item, list):
                    yield Decimal(len(item))
                elif self._lax or self._tolerant:
                    yield Decimal(1)
                else:
                    message = "jsonpath item method .size() can only be applied to an array"
                    raise PathError(SqlState.SQL_JSON_ARRAY_NOT_FOUND, message)
            case "double":
                yield _double(item)
            case "keyvalue":
                yield from self._pairs(item)
            case "datetime":
                yield _datetime(item)
            case _:
                if not isinstance(item, Decimal):
                    message = f"jsonpath item method .{name}() can only be applied to a numeric value"
                    raise PathError(SqlState.NON_NUMERIC_SQL_JSON_ITEM, message)
                yield _ROUNDED[name](item)

    def _pairs(self, item: Any) -> Iterator[Any]:
        if not isinstance(item, dict):
            message = "jsonpath item method .keyvalue() can only be applied to an object"
            raise PathError(SqlState.SQL_JSON_OBJECT_NOT_FOUND, message)
        if item is not self._document:  # `id` would be its offset in PostgreSQL's binary form
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "jsonpath item method .keyvalue() of an object inside another value is not supported",
                hint="Use jsonb_each().",
            )
        for key in _stored_order(item):
            yield {"id": Decimal(0), "key": key, "value": item[key]}

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def _signed(self, node: Unary, item: Any) -> Iterator[Any]:
        for found in list(self._unwrapped(node.operand, item)):
            if not isinstance(found, Decimal):
                message = f"operand of unary jsonpath operator {node.symbol} is not a numeric value"
                raise PathError(SqlState.SQL_JSON_NUMBER_NOT_FOUND, message)
            yield found if node.symbol == "+" or not found else found.copy_negate()

    def _computed(self, node: Binary, item: Any) -> Decimal:
        sides = [list(self._unwrapped(side, item)) for side in (node.left, node.right)]
        for values, side in zip(sides, ("left", "right"), strict=True):
            if len(values) != 1 or not isinstance(values[0], Decimal):
                message = f"{side} operand of jsonpath operator {node.symbol} is not a single numeric value"
                raise PathError(SqlState.SINGLETON_SQL_JSON_ITEM_REQUIRED, message)
        (left,), (right,) = sides
        try:
            return _ARITHMETIC[node.symbol](left, right)
        except (DivisionByZero, InvalidOperation):
            raise PathError(SqlState.DIVISION_BY_ZERO, "division by zero") from None

    # -- predicates -----------------------------------------------------------------------------------------------

    def _truth(self, node: Node, item: Any) -> bool | None:
        """The truth of a predicate; None is unknown."""
        match node:
            case Logical(symbol=symbol, left=left, right=right):
                absorbing = symbol == "||"
                first = self._truth(left, item)
                if first is absorbing:
                    return first
                second = self._truth(right, item)
                return first if second is (not absorbing) else second
            case Negation(operand=operand):
                truth = self._truth(operand, item)
                return None if truth is None else not truth
            case IsUnknown(operand=operand):
                return self._truth(operand, item) is None
            case Exists(operand=operand):
                return self._exists(operand, item)
            case Comparison(symbol=symbol, left=left, right=right):
                return self._any_pair(left, right, item, self._comparison_of(symbol), unwraps_right=True)
            case StartsWith(operand=operand, prefix=prefix):
                return self._any_pair(operand, prefix, item, _starts)
            case LikeRegex(operand=operand, pattern=pattern, flags=flags):
                regex = compiled(pattern, flags)
                test = lambda text, _: regex.test(text) if isinstance(text, str) else None  # noqa: E731
                return self._any_pair(operand, Value(None), item, test)
        raise AssertionError(node)

    def _comparison_of(self, symbol: str) -> Callable[[Any, Any], bool | None]:
        def test(a: Any, b: Any) -> bool | None:
            if isinstance(a, Moment) and isinstance(b, Moment):
                return compared(_COMPARISONS[symbol], a, b, self._timezone)
            return _compared(symbol, a, b)

        return test

    def _exists(self, operand: Node, item: Any) -> bool | None:
        try:
            found = self._items(operand, item)
            return any(True for _ in found) if self._lax else bool(list(found))
        except PathError:
            return None

    def _any_pair(
        self,
        left: Node,
        right: Node,
        item: Any,
        test: Callable[[Any, Any], bool | None],
        *,
        unwraps_right: bool = False,
    ) -> bool | None:
        """Whether the test is true for a pair of items. In strict mode it is unknown if it is unknown for any pair."""
        try:
            lefts = list(self._unwrapped(left, item))
            rights = list(self._unwrapped(right, item) if unwraps_right else self._items(right, item))
        except PathError:
            return None
        is_unknown = found = False
        for a in lefts:
            for b in rights:
                truth = test(a, b)
                if truth is None:
                    if not self._lax:
                        return None
                    is_unknown = True
                elif truth:
                    if self._lax:
                        return True
                    found = True
        return True if found else None if is_unknown else False


def _stored_order(item: dict[str, Any]) -> list[str]:
    return sorted(item, key=lambda key: (len(encoded := key.encode()), encoded))


def _descendants(item: Any, low: int, high: int, level: int) -> Iterator[Any]:
    """The item and its descendants at the levels from low to high, each before its own descendants."""
    is_container = isinstance(item, (list, dict))
    at_end = low == high == LAST and not is_container
    if at_end or (low != LAST and low <= level and (high == LAST or level <= high)):
        yield item
    if is_container and (high == LAST or level < high):
        for value in item if isinstance(item, list) else [item[key] for key in _stored_order(item)]:
            yield from _descendants(value, low, high, level + 1)


def _starts(text: Any, prefix: Any) -> bool | None:
    return text.startswith(prefix) if isinstance(text, str) and isinstance(prefix, str) else None


def _compared(symbol: str, a: Any, b: Any) -> bool | None:
    """A comparison of two items. Values of different types, arrays and objects are not comparable."""
    if type(a) is not type(b):
        return symbol == "!=" if a is None or b is None else None
    if isinstance(a, (list, dict)):
        return None
    if a is None:
        a = b = 0
    elif isinstance(a, str):
        a, b = (text.encode("utf-16-be", "surrogatepass") for text in (a, b))
    return _COMPARISONS[symbol](a, b)


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise DivisionByZero
    unit = Decimal(1).scaleb(-division_scale(left, right), _EXACT)
    digits = max(left.adjusted() - right.adjusted(), 0) - int(unit.as_tuple().exponent) + 10
    return Context(prec=digits).divide(left, right).quantize(unit, ROUND_HALF_UP, _EXACT)


_ARITHMETIC: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _EXACT.add,
    "-": _EXACT.subtract,
    "*": _EXACT.multiply,
    "/": _quotient,
    "%": _EXACT.remainder,
}
_ROUNDED: dict[str, Callable[[Decimal], Decimal]] = {
    "abs": abs,
    "floor": lambda number: number.to_integral_value(ROUND_FLOOR),
    "ceiling": lambda number: number.to_integral_value(ROUND_CEILING),
}


def _datetime(item: Any) -> Moment:
    state = SqlState.INVALID_ARGUMENT_FOR_SQL_JSON_DATETIME_FUNCTION
    if not isinstance(item, str):
        raise PathError(state, "jsonpath item method .datetime() can only be applied to a string")
    found = moment(item)
    if found is None:
        hint = "Use a datetime template argument to specify the input data format."
        raise PathError(state, f'datetime format is not recognized: "{item}"', hint=hint)
    return found


def _double(item: Any) -> Decimal:
    if not isinstance(item, (Decimal, str)):
        message = "jsonpath item method .double() can only be applied to a string or numeric value"
        raise PathError(SqlState.NON_NUMERIC_SQL_JSON_ITEM, message)
    try:
        value = parse_text(FLOAT8, f"{item}")
    except PgError:
        value = float("nan")
    if value - value != 0:
        kind = "numeric" if isinstance(item, Decimal) else "string"
        message = f"{kind} argument of jsonpath item method .double() is not a valid representation of a "
        raise PathError(SqlState.NON_NUMERIC_SQL_JSON_ITEM, f"{message}double precision number")
    return item if isinstance(item, Decimal) else Decimal(f"{value:.15g}")
