"""Type conversion: casts, the types of unknown literals and parameters, common types (PostgreSQL's manual, ch. 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.nested_lists import flattened, wrong_dimensions
from protocol.pgwire.scalars import literal_dimensions, parse_text, too_many_digits
from protocol.pgwire.types import (
    ANY_NUMERIC,
    DATE,
    DIMENSIONS_MAX,
    INT4,
    INT8,
    NUMERIC,
    RECORD,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    PgType,
    array_of,
    bare_numeric,
    is_row,
    returned_type,
    too_many_dimensions,
    with_dimensions,
)
from protocol.pgwire.types import NUMERIC_PRECISION_MAX as MAX
from server.sql.casts import (
    CastRule,
    Coercion,
    find_cast,
    has_modifiers,
    is_utc,
    modify,
    natural_numeric,
    pads_far,
    resulting_type,
)
from server.sql.expressions import Array, Call, Cast, Expression, Literal, Parameter, SessionValue
from server.sql.functions.records import TEXT_OF_ROW, TEXT_OF_ROWS
from server.sql.functions.resolve import category, is_preferred, resolve_operator
from server.sql.functions.syntax import JOINED, UNEQUAL_ARRAYS

INT4_MAX, INT8_MAX = (1 << 31) - 1, (1 << 63) - 1
_DAYS = {"today": 0, "tomorrow": 1, "yesterday": -1}
_CLOCK_TYPES = {
    **dict.fromkeys(("date", "timestamp", "timestamptz"), frozenset(("now", *_DAYS))),
    "time": frozenset(("now",)),
}
"""The inputs of types that depend on the clock. Views, defaults and maintained queries, for which PostgreSQL would
store the time of the definition, cannot contain them: `parse_text` refuses them."""
IMPLICIT, ASSIGNMENT, EXPLICIT = Coercion.IMPLICIT, Coercion.ASSIGNMENT, Coercion.EXPLICIT


class OtherDimensions(PgError):
    """A parameter whose declared type has another number of dimensions than the statement requires."""

    def __init__(self, error: PgError, index: int, dimensions: int) -> None:
        super().__init__(error.sqlstate, error.message, hint=error.hint)
        self.index = index
        self.dimensions = dimensions


class Coercer:
    """Coerces expressions of one statement and infers the types of its parameters.

    `parameters` has an entry for every $n seen or declared; None while its type is unknown. `maintained`: the query is
    maintained incrementally, so its result must not depend on a session's time zone.
    """

    def __init__(
        self, parameters: Sequence[PgType | None] | None, timezone: str, style: InputStyle, *, maintained: bool
    ) -> None:
        """`parameters` None: parameters are not allowed."""
        self.maintained = maintained
        self.takes_parameters = parameters is not None
        self.parameters = list(parameters or ())
        self.timezone = timezone
        self.input_style = style
        self.inside_view = 0
        """The nesting depth in texts of the catalog: those of views, defaults and rules."""

    @property
    def is_utc(self) -> bool:
        return is_utc(self.timezone)

    def parameter(self, index: int, position: int | None) -> Expression:
        self.parameters.extend([None] * (index + 1 - len(self.parameters)))
        return Parameter(index, self.parameters[index] or UNKNOWN, position)

    def coerce(
        self, expression: Expression, target: PgType, context: Coercion = IMPLICIT, position: int | None = None
    ) -> Expression:
        """`expression` converted to `target`, including modifiers. 42846 if the context allows no such cast.

        With a bare numeric as target, the expression keeps its scale; see `rescale`.
        """
        if expression.type == UNKNOWN:
            return self._unknown(expression, _wanted(expression, target), context, position)
        expression = self._with_dimensions(expression, target, position)
        source = expression.type
        if source.without_modifiers == target.without_modifiers and (not has_modifiers(target) or source == target):
            return expression
        rule = find_cast(source.without_modifiers, target.without_modifiers)
        if rule is None or rule.context > context:
            raise cannot_cast(source, target, position)
        result = resulting_type(source, target)
        if source.name == target.name and source.name != "_varchar" and not has_modifiers(target):
            return expression
        return self.cast(expression, rule, result, context is ASSIGNMENT)

    def fitting(self, expression: Expression, target: PgType) -> PgType:
        """`target`, with the number of dimensions that the value of the expression has, if it is an array.

        A parameter has those of a target that names several.
        """
        if target.element is None or _is_empty(expression):
            return target
        if isinstance(expression, Parameter) and target.dimensions > 1:
            return target
        if expression.type.element is not None:
            return with_dimensions(target, expression.type.dimensions)
        if isinstance(expression, Literal) and expression.type == UNKNOWN:
            return with_dimensions(target, literal_dimensions(expression.value) or target.dimensions)
        return target

    def _with_dimensions(self, expression: Expression, target: PgType, position: int | None) -> Expression:
        """The expression with the target's number of dimensions, which an empty array has. 0A000 if it has another one;
        that of a parameter is `OtherDimensions`.
        """
        source = expression.type
        if source.element is None or target.element is None or source.dimensions == target.dimensions:
            return expression
        if isinstance(expression, Literal) and _is_empty(expression):
            return replace(expression, type=with_dimensions(source, target.dimensions))
        error = wrong_dimensions(source.dimensions, target)
        if isinstance(expression, Parameter):
            error = OtherDimensions(error, expression.index, target.dimensions)
        error.position = getattr(expression, "position", None) or position
        raise error

    def cast(self, expression: Expression, rule: CastRule, target: PgType, assignment: bool = False) -> Expression:
        """A Literal with the cast value if the operand is a literal, otherwise a Cast node. Raises as `check_zone`."""
        if self.input_style is not DEFAULT_INPUT and expression.type.is_string_family:
            base = target.element or target
            if base.name in ("date", "timestamp", "timestamptz", "interval"):
                raise self._styled(f"a cast of text to {target.base_display}")
        if is_row(expression.type) and not is_row(target):
            expression = self.row_text(expression)
        if rule.zoned is not None:
            self.check_zone(f"a cast from {expression.type.base_display} to {target.base_display}")
        if isinstance(expression, Literal) and not (pads_far(target) and expression.value is not None):
            if expression.value is None:
                return replace(expression, type=target)
            value = modify(rule.apply(expression.value, target, self.timezone), target, assignment=assignment)
            return Literal(value, self.literal_type(value, target), expression.position)
        return Cast(expression, target, assignment, self.timezone if rule.zoned is not None else "")

    def _check_style(self, value: object, text: str, target: PgType) -> None:
        """0A000 for a literal of a maintained query that has another value under the default settings."""
        try:
            same = bool(value == parse_text(target.without_modifiers, text, timezone=self.timezone))
        except PgError:
            same = False
        if not same:
            raise self._styled(f'the literal "{text}" in a maintained query')

    @staticmethod
    def _styled(what: str) -> PgError:
        return PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{what} is only supported with the DateStyle order MDY and without IntervalStyle sql_standard",
            hint="Use to_date() or to_timestamp(), or SET DateStyle = 'ISO, MDY' and IntervalStyle = 'postgres'.",
        )

    def row_text(self, expression: Expression) -> Expression:
        """The text of a row, or the texts of an array of rows. Raises as `check_zone`."""
        function = TEXT_OF_ROW if expression.type.element is None else TEXT_OF_ROWS
        self.check_zone("the text of a row")
        result = returned_type(expression.type)
        return Call(function, (expression,), result, expression.nullable, timezone=self.timezone)

    def as_output(self, expression: Expression) -> Expression:
        """A value as a client receives it: of rows their texts."""
        return self.row_text(expression) if is_row(expression.type) else expression

    def check_zone(self, what: str) -> None:
        """0A000 if the query is maintained and the session's time zone is not UTC. `what` depends on the time zone."""
        if self.maintained and not self.is_utc:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"{what} in a maintained query is only supported in a session whose TimeZone is UTC",
                hint="SET TimeZone = 'UTC', or name the zone with AT TIME ZONE.",
            )

    @staticmethod
    def literal_type(value: object, target: PgType) -> PgType:
        if target == NUMERIC and value is not None:
            return natural_numeric(value)  # type: ignore[arg-type]
        return target

    def _unknown(self, expression: Expression, target: PgType, context: Coercion, position: int | None) -> Expression:
        if isinstance(expression, Literal):
            return self._literal(expression, target, context, position)
        if isinstance(expression, Parameter):
            base = target.without_modifiers
            known = self.parameters[expression.index]
            if known is None:
                self.parameters[expression.index] = base
            elif known != base:
                raise PgError(
                    SqlState.AMBIGUOUS_PARAMETER,
                    f"inconsistent types deduced for parameter ${expression.index + 1}",
                    detail=f"{known.display} versus {base.display}",
                    position=expression.position,
                )
            typed = replace(expression, type=base)
            return self.coerce(typed, target, context, position) if has_modifiers(target) else typed
        # an untyped column of a subquery; PostgreSQL would make it text
        raise cannot_cast(UNKNOWN, target, position)

    def _literal(self, literal: Literal, target: PgType, context: Coercion, position: int | None) -> Expression:
        if literal.value is None or target == UNKNOWN:
            return replace(literal, type=target)
        if (target.element or target).name == RECORD.name:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "input of anonymous composite types is not implemented",
                hint="Write the row as ROW(...).",
                position=literal.position or position,
            )
        if pads_far(target):
            unpadded = self._literal(literal, target.without_modifiers, context, position)
            return Cast(unpadded, target, context is not EXPLICIT)
        is_stored = self.maintained or self.inside_view or not self.takes_parameters
        if not is_stored and target.name in _CLOCK_TYPES and (word := _word(literal)) in _CLOCK_TYPES[target.name]:
            return self._clock_word(word, target)
        try:
            read_as = ANY_NUMERIC if target == NUMERIC else target.without_modifiers
            value = parse_text(read_as, literal.value, timezone=self.timezone, style=self.input_style)
            value = modify(value, read_as if target == NUMERIC else target, assignment=context is not EXPLICIT)
            if self.maintained and self.input_style is not DEFAULT_INPUT:
                self._check_style(value, literal.value, target)
            zoned = self.maintained and (target.element or target).name == "timestamptz"
            if zoned and value != parse_text(target.without_modifiers, literal.value):
                self.check_zone(f"{target.base_display} without a time zone")
        except PgError as error:
            if error.position is None:
                error.position = literal.position or position
            raise
        return Literal(value, self.literal_type(value, target), literal.position)

    def _clock_word(self, word: str, target: PgType) -> Expression:
        """The start of the transaction, or the beginning of a day, as that of now()."""
        now = SessionValue("now", TIMESTAMPTZ)
        if word == "now":
            return self.coerce(now, target, ASSIGNMENT)
        plus = resolve_operator("+", (DATE, INT4))
        assert plus is not None
        days = Literal(_DAYS[word], INT4)
        day = Call(plus.function, (self.coerce(now, DATE, ASSIGNMENT), days), DATE, nullable=True)
        return self.coerce(day, target, ASSIGNMENT)

    def rescale(self, expression: Expression, target: PgType) -> Expression:
        """Called after `coerce`: casts a numeric or an array of numerics to exactly the target's scale."""
        if expression.type == target:
            return expression
        numeric = (target.element or target).name == "numeric"
        if not numeric:
            return expression
        if isinstance(expression, Literal):
            return replace(expression, value=modify(expression.value, target), type=target)
        return Cast(expression, target)

    def common_type(self, expressions: Sequence[Expression], what: str, position: int | None = None) -> PgType:
        """The common type of the branches of CASE, UNION, VALUES, ...; text if all are unknown. 42804 if there is none.

        `what` is the start of the message: `CASE types integer and text cannot be matched`.
        Source: PostgreSQL's select_common_type.
        """
        types = _of_same_dimensions(expressions)
        known = [t for t in types if t != UNKNOWN]
        if not known:
            return TEXT
        if known[0].name in ("record", "_record") and all(t.name == known[0].name for t in known):
            check_same_rows([t.element or t for t in known])
            return known[0]
        if all(t == known[0] for t in known):
            return known[0] if len(known) == len(types) else known[0].without_modifiers
        chosen = known[0].without_modifiers
        last = None
        for expression, given in zip(expressions, types, strict=True):
            if given is last:  # makes long lists of equal types cheap
                continue
            last = given
            type = last.without_modifiers
            if type == UNKNOWN:
                continue
            if type == chosen or (type.name == chosen.name and type.element is None):
                continue
            if category(type) != category(chosen):
                raise PgError(
                    SqlState.DATATYPE_MISMATCH,
                    f"{what} types {chosen.display} and {type.display} cannot be matched",
                    position=getattr(expression, "position", None) or position,
                )
            if not is_preferred(chosen) and _converts(chosen, type) and not _converts(type, chosen):
                chosen = type
        return self._with_scale(chosen, known)

    @staticmethod
    def _with_scale(chosen: PgType, types: Sequence[PgType]) -> PgType:
        """`chosen`; if it is numeric, a bare numeric with the largest scale of `types`."""
        inner = chosen.element or chosen
        if inner.name != "numeric":
            return chosen
        scale = max(((t.element or t).scale or 0) for t in types)
        number = bare_numeric(scale)
        return number if chosen.element is None else array_of(number, chosen.dimensions)

    def to_common(
        self, expressions: Sequence[Expression], what: str, position: int | None = None
    ) -> tuple[PgType, list[Expression]]:
        """The common type and the expressions converted to it."""
        common = self.common_type(expressions, what, position)
        coerced = [self._to_common(e, common, what, position) for e in expressions]
        differ = any(e.type != common for e in coerced)
        if differ and (common.element or common).name == "numeric":  # literals may have a larger scale
            common = self._with_scale(common, [e.type for e in coerced])
        return common, [self.rescale(e, common) for e in coerced]

    def _to_common(self, expression: Expression, common: PgType, what: str, position: int | None) -> Expression:
        try:
            return self.coerce(expression, common, IMPLICIT, position)
        except PgError as error:
            if error.sqlstate is not SqlState.CANNOT_COERCE or expression.type == UNKNOWN:
                raise
            message = f"{what} could not convert type {expression.type.base_display} to {common.base_display}"
            at = getattr(expression, "position", None) or position
            raise PgError(SqlState.CANNOT_COERCE, message, position=at) from None

    def default_unknown(self, expression: Expression) -> Expression:
        """The expression as text if its type is still unknown, otherwise unchanged."""
        return self.coerce(expression, TEXT) if expression.type == UNKNOWN else expression

    def array(self, elements: Sequence[Expression], position: int | None) -> Array | Call:
        """ARRAY[elements] of their common type; of arrays, an array of one dimension more."""
        check_dimensions(elements)
        return array_of_items(*self.to_common(elements, "ARRAY", position), position)


def array_of_items(common: PgType, items: Sequence[Expression], position: int | None) -> Array | Call:
    """An array of items of type `common`. 54000 if it has too many dimensions, 0A000 for arrays of rows."""
    if common.element is None:
        return Array(tuple(items), array_of(common))
    count = common.dimensions + 1
    if count > DIMENSIONS_MAX:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(count), position=position)
    if is_row(common):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "an array of rows of more than one dimension is not supported",
            hint="Nest the rows in a jsonb, as jsonb_build_array(...).",
            position=position,
        )
    type = with_dimensions(common, count)
    return Call(JOINED, (Array(tuple(items), type),), type, False)


def check_dimensions(arrays: Sequence[Expression]) -> None:
    """2202E if the elements of ARRAY[...] are arrays of different numbers of dimensions."""
    counts = {array.type.dimensions for array in arrays if array.type.element is not None and not _is_empty(array)}
    if len(counts) > 1:
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, UNEQUAL_ARRAYS)


def _is_empty(expression: Expression) -> bool:
    """Whether it is NULL or an empty array, which has any number of dimensions."""
    return isinstance(expression, Literal) and (expression.value is None or expression.value == [])


def _of_same_dimensions(expressions: Sequence[Expression]) -> list[PgType]:
    """The types of the expressions, with the number of dimensions that the values which are arrays have."""
    types = [expression.type for expression in expressions]
    if all(type.dimensions == 1 for type in types):
        return types
    count = common_dimensions(expressions)
    return [with_dimensions(type, count) for type in types]


def common_dimensions(expressions: Sequence[Expression]) -> int:
    """The number of dimensions of the first array among the expressions that is not empty; 0 if none is an array."""
    arrays = [expression for expression in expressions if expression.type.element is not None]
    filled = next((array for array in arrays if not _is_empty(array)), arrays[0] if arrays else None)
    return 0 if filled is None else filled.type.dimensions


def _word(literal: Literal) -> str:
    return str(literal.value).strip().lower()


def _wanted(unknown: Expression, target: PgType) -> PgType:
    """The type to which a literal or parameter of type unknown is converted. It is not rounded to a derived scale."""
    is_null = isinstance(unknown, Literal) and unknown.value is None
    if is_null or (target.element or target).name != "numeric" or has_modifiers(target):
        return target
    return NUMERIC if target.element is None else array_of(NUMERIC, target.dimensions)


def check_same_rows(types: Sequence[PgType]) -> None:
    """0A000 if rows have different fields, apart from the names of these."""
    for type in types:
        if type != types[0] and type.arrow != types[0].arrow:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "rows with fields of different types in one column are not supported",
                hint="Cast the fields to the same types.",
            )


def _converts(source: PgType, target: PgType) -> bool:
    rule = find_cast(source, target)
    return rule is not None and rule.context is IMPLICIT


def cannot_cast(source: PgType, target: PgType, position: int | None) -> PgError:
    message = f"cannot cast type {source.base_display} to {target.base_display}"
    return PgError(SqlState.CANNOT_COERCE, message, position=position)


def integer_literal(text: str, position: int | None) -> Literal:
    """The literal for an integer in the source text: integer, bigint or numeric, depending on its value."""
    value = Decimal(text)
    for type, bits in ((INT4, 31), (INT8, 63)):
        if -(1 << bits) <= value < 1 << bits:
            return Literal(int(value), type, position)
    return Literal(value, bare_numeric(0), position)


def check_digits(literal: Literal) -> None:
    """22003 if a literal is a numeric with more digits than the 38 that are supported.

    This is checked only after binding, because such a literal may be converted to another type first: `1e300` can be
    added to a double precision.
    """
    value = literal.value
    for number in flattened(value, literal.type.dimensions) if isinstance(value, list) else (value,):
        if isinstance(number, Decimal) and (number.adjusted() >= MAX or int(number.as_tuple().exponent) < -MAX):
            error = too_many_digits()
            error.position = literal.position
            raise error
