"""Rendering of expressions to Spark SQL text. The result has exactly the Spark type of the PostgreSQL type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, assert_never

from protocol.pgwire.types import BOOL, BYTEA, INT8, JSONB
from server.sql.casts import find_cast, has_fitted_elements, is_utc
from server.sql.coerce import INT4_MAX
from server.sql.columns import names_any
from server.sql.expressions import (
    Aggregate,
    Array,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Parameter,
    Quantified,
    SessionValue,
    SortKey,
    Subquery,
    SubqueryKind,
    Volatile,
    WindowCall,
    precision,
    transform,
)
from server.sql.functions import worker
from server.sql.functions.json import JSONB_SORT_KEY
from server.sql.functions.sort_forms import sort_form
from server.sql.functions.syntax import AND, NOT, OR
from server.sql.functions.table import Function, Kind, Let, Nulls, let
from server.sql.functions.windows import frame_offset
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.trees import too_complex
from server.sql.infinities import has_infinities
from server.sql.relations import Relation
from server.sql.render.block import Block
from server.sql.render.calls import (
    PYTHON_CALL,
    fill,
    fit_length,
    infinite_or_finite,
    may_be_infinite,
    plain_call,
    python_call,
)
from server.sql.render.literals import literal_text
from server.sql.render.shared_values import SharedValues
from server.sql.render.spark_types import spark_type
from server.sql.row_bounds import check_not_negative, evaluated
from server.sql.volatile import unplaced

ADDED_CHARS_MAX = 64 << 20
"""The limit of characters by which the texts of a statement's calls and casts exceed those of their operands. The Spark
SQL of some functions contains an argument several times, so that nested ones have exponentially long texts."""

Bind = Callable[[Parameter | SessionValue], Literal | str]


class ExpressionRenderer(ABC):
    """Renders expressions; `block` renders the queries inside them. `bind` is as in `Renderer`."""

    def __init__(self, bind: Bind) -> None:
        self.bind = bind
        self._names: dict[int, str] = {}
        self._added_chars = 0

    @abstractmethod
    def block(self, relation: Relation) -> Block:
        """The block of a relation, to which further clauses can be added."""

    def name(self, column: Column) -> str:
        """The column's name, which is the same everywhere in the statement."""
        return self._names.get(column.id) or f"x{column.id}"

    def expression(self, expression: Expression, shared: SharedValues | None = None) -> str:
        """The expression's Spark SQL. Raises PgError for a literal that Spark cannot represent (see `literals`).

        With `shared`, the expression is evaluated for each row, and values that it uses several times become columns
        below it. A value that is not evaluated for each row does not: it might raise an error that the query does not.
        """
        checkpoint()
        match expression:
            case Literal():
                return literal_text(expression)
            case Parameter() | SessionValue():
                bound = self.bind(expression)
                return bound if isinstance(bound, str) else literal_text(bound)
            case Volatile(name="random"):
                seed = self.bind(SessionValue("random_seed", INT8))
                return f"rand({seed if isinstance(seed, str) else literal_text(seed)})"
            case Volatile(name=name):
                raise unplaced(name)
            case ColumnRef():
                return self.name(expression.column)
            case Call():
                return self._call(expression, shared)
            case Cast():
                return self._cast(expression, shared)
            case Case():
                branches = " ".join(
                    f"WHEN {self.expression(c)} THEN {self.expression(v)}" for c, v in expression.branches
                )
                return f"CASE {branches} ELSE {self.expression(expression.default)} END"
            case Array():
                items = ", ".join(map(self.expression, expression.elements))
                return f"CAST(array({items}) AS {spark_type(expression.type)})"
            case InList():
                items = ", ".join(map(self.expression, expression.items))
                return f"({self.expression(expression.operand)} IN ({items}))"
            case Quantified():
                return self._quantified(expression)
            case Aggregate():
                return self._aggregate(expression, "")
            case WindowCall():
                return self._window(expression)
            case Subquery():
                return self._subquery(expression)
            case _:
                assert_never(expression)

    def _quantified(self, quantified: Quantified) -> str:
        """Spark allows no Python UDF in a lambda. One that compares gets the whole array as an argument; those that do
        not depend on the element are called outside of the lambda."""
        call, element, array = quantified.call, quantified.element, self.expression(quantified.array)
        if isinstance(call, Call) and call.arguments[1:] == (ColumnRef(element),):
            text = self._call(call)
            if text.startswith(PYTHON_CALL):
                key = worker.quantified_key(
                    call.function, [a.type for a in call.arguments], call.timezone, quantified.all
                )
                return python_call(key, [self.expression(call.arguments[0]), array], BOOL, 0)
        outside = [array] if PYTHON_CALL in array else []
        values = f"q{element.id}"

        def inside(node: Any) -> Expression | None:
            if not isinstance(node, (Call, Cast, Case)) or names_any(node, {element.id}):
                return None
            text = self.expression(node)
            if PYTHON_CALL not in text:
                return node
            column = Column(-1 - len(self._names), "", node.type, node.nullable, precision(node))
            self._names[column.id] = f"{values}.v{len(outside)}"
            outside.append(text)
            return ColumnRef(column)

        test = self.expression(transform(call, inside))
        word = "forall" if quantified.all else "exists"
        over = f"{values}.v0" if PYTHON_CALL in array else array
        text = f"{word}({over}, {self.name(element)} -> {test})"
        if not outside:
            return text
        fields = ", ".join(f"'v{i}', {value}" for i, value in enumerate(outside))
        return let(f"named_struct({fields})", lambda _: text, values)

    def _within_limit(self, text: str, parts: Iterable[str]) -> str:
        """The text of a call with these arguments. 54001 if too much was added to arguments so far."""
        self._added_chars += max(len(text) - sum(map(len, parts)), 0)
        if self._added_chars > ADDED_CHARS_MAX:
            raise too_complex()
        return text

    def _call(self, call: Call, shared: SharedValues | None = None) -> str:
        of_arguments = shared if _evaluates_all(call.function) else None
        texts = [self.expression(argument, of_arguments) for argument in call.arguments]
        guarded = [i for i in call.function.guarded if may_be_infinite(call.arguments[i])]
        text = infinite_or_finite(call, texts, guarded) if guarded else plain_call(call, texts)
        while isinstance(text, Let) and shared is not None:
            text = text.form(shared.name(text.value))
        if not text or not is_utc(call.timezone):
            key = worker.function_key(call.function, [a.type for a in call.arguments], call.timezone)
            return python_call(key, texts, call.type, precision(call))
        return self._within_limit(text, texts)

    def _cast(self, cast: Cast, shared: SharedValues | None) -> str:
        source, target = cast.operand.type, cast.type
        text = self.expression(cast.operand, shared)
        rule = find_cast(source.without_modifiers, target.without_modifiers)
        assert rule is not None, (source, target)
        if source.name == target.name == "numeric" or (
            source.element is not None and target.element is not None and target.element.name == "numeric"
        ):
            return f"CAST({text} AS {spark_type(target, precision(cast) if target.element is None else 0)})"
        inner = target if target.element is None else target.element
        digits = precision(cast) if target.name == "numeric" else 0
        operand = text
        rounds = inner.second_digits is not None
        if rule.spark is not None and is_utc(cast.timezone) and not rounds:
            form = rule.spark.replace("{t}", spark_type(inner, digits))
            if source.hides_zeros and inner.is_string_family:
                form = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {form}))"
            several = has_infinities(source) and source.element is None and form.count("{0}") > 1
            text = let(text, lambda name: form.replace("{0}", name), "c") if several else form.replace("{0}", text)
            if isinstance(text, Let) and shared is not None:
                text = text.form(shared.name(text.value))
        else:
            text = python_call(worker.cast_key(source, target, cast.timezone), [text], target, digits)
        if target.length is not None and not rounds:
            text = fit_length(text, target, cast.assignment)
        elif has_fitted_elements(target):
            fitted = fit_length("e", inner, cast.assignment)
            for _ in range(target.dimensions - 1):
                fitted = f"transform(e, e -> {fitted})"
            text = f"transform({text}, e -> {fitted})"
        return self._within_limit(text, (operand,))

    def _aggregate(self, call: Aggregate, over: str) -> str:
        texts = [self.expression(argument) for argument in call.arguments]
        spark = call.function.spark
        # The template contains no text of an argument: a literal in it could contain braces.
        places = [f"{{{i}}}" for i in range(len(texts))]
        template = spark(call.arguments, places) if callable(spark) else spark
        if over and call.filter is not None:  # Spark does not allow FILTER with OVER
            condition = self.expression(call.filter)
            passing = [f"CASE WHEN {condition} THEN {text} END" for text in texts]
            if template and "{a}" not in template:
                template = template.replace("count(1)", "count({row})")
                marks = {"d": "", "f": over, "row": f"CASE WHEN {condition} THEN 1 END"}
                return fill(template, passing, marks)
        if not template:
            key = worker.function_key(call.function, [a.type for a in call.arguments], "")
            rows = self._rows(call, over)
            lists = [f"transform({rows}, e -> e.v{i})" for i in range(len(texts))]
            return python_call(key, lists, call.type, precision(call))
        tail = over
        if call.filter is not None:
            tail = f" FILTER (WHERE {self.expression(call.filter)}){over}"
        marks = {"d": "DISTINCT " if call.distinct else "", "f": tail}
        if "{a}" in template:
            element = spark_type(call.arguments[0].type)
            values = f"transform({self._rows(call, over)}, e -> CAST(e.v0 AS {element}))"
            marks["a"] = f"nullif({values}, CAST(array() AS ARRAY<{element}>))"
        return fill(template, texts, marks)

    def _rows(self, call: Aggregate, over: str) -> str:
        """The arguments of the group's rows as an array of structs (v0, v1, ...).

        The array is ordered by ORDER BY, then by the arguments; in a window, by the window's order. The elements are
        structs because collect_list drops NULLs. For string_agg, rows with a NULL value are left out.
        """
        values = [self.expression(argument) for argument in call.arguments]
        conditions = [] if call.filter is None else [self.expression(call.filter)]
        if call.function.name == "string_agg":
            conditions.append(f"{values[0]} IS NOT NULL")
        condition = " AND ".join(conditions)
        row = ", ".join(f"'v{i}', {value}" for i, value in enumerate(values))
        if over:
            row = f"named_struct({row})"
            return f"collect_list({f'IF({condition}, {row}, NULL)' if condition else row}){over}"
        ordered = [key.expression for key in call.order]
        others = (a for a in call.arguments if not isinstance(a, Literal) and a not in ordered)
        keys = [*call.order, *(SortKey(argument, False, False) for argument in others)]
        fields = "".join(f"'k{i}', {self._comparable(key.expression)}, " for i, key in enumerate(keys))
        tail = f" FILTER (WHERE {condition})" if condition else ""
        distinct = "DISTINCT " if call.distinct else ""
        rows = f"collect_list({distinct}named_struct({fields}{row})){tail}"
        comparisons = []
        for i, key in enumerate(keys):
            null, less = (-1 if key.nulls_first else 1), (1 if key.descending else -1)
            comparisons.append(
                f"WHEN l.k{i} <=> r.k{i} THEN {{}} WHEN l.k{i} IS NULL THEN {null} WHEN r.k{i} IS NULL THEN {-null} "
                f"WHEN l.k{i} < r.k{i} THEN {less} ELSE {-less} END"
            )
        compare = "0"
        for text in reversed(comparisons):
            compare = "CASE " + text.format(compare)
        return f"array_sort({rows}, (l, r) -> {compare})"

    def _window(self, call: WindowCall) -> str:
        parts = []
        if call.partition:
            parts.append("PARTITION BY " + ", ".join(map(self.expression, call.partition)))
        if call.order:
            parts.append("ORDER BY " + ", ".join(map(self.sort_key, call.order)))
        elif call.call.function.name in ("row_number", "rank", "dense_rank", "ntile", "lag", "lead", "percent_rank",
                                         "cume_dist"):  # fmt: skip
            parts.append("ORDER BY NULL")  # Spark requires an order for these functions
        if call.frame:
            parts.append(call.frame.format(*(self._offset(call, place) for place in range(len(call.offsets)))))
        called = call.call
        if called.function.kind is Kind.WINDOW and called.function.prepare is not None:
            arguments = tuple(transform(argument, self._bound) for argument in called.arguments)
            called = replace(called, arguments=called.function.prepare(arguments))
        return self._aggregate(called, f" OVER ({' '.join(parts)})")

    def _offset(self, call: WindowCall, place: int) -> str:
        """One of the offsets of a frame, or any if its parameter is not bound yet."""
        bound = transform(call.offsets[place], self._bound)
        value = bound.operand if isinstance(bound, Cast) else bound
        if not isinstance(value, Literal):
            return "1"
        is_start = f"{{{place}}}" in call.frame.partition(" AND ")[0]
        return frame_offset(value.value, "starting" if is_start else "ending")

    def _bound(self, node: object) -> Literal | None:
        """The value of a parameter. None for other expressions, and if the value is not known yet."""
        bound = self.bind(node) if isinstance(node, Parameter) else None
        return bound if isinstance(bound, Literal) else None

    def conjunct(self, condition: Expression) -> str:
        """A condition of WHERE. In WHERE, unlike elsewhere, Spark's IN and NOT IN (query) treat NULL correctly."""
        if isinstance(condition, Call) and condition.function is NOT and _is_in_query(condition.arguments[0]):
            return f"(NOT {self.conjunct(condition.arguments[0])})"
        if not isinstance(condition, Subquery) or condition.kind is not SubqueryKind.IN:
            return self.expression(condition)
        operands = ", ".join(map(self.expression, condition.operands))
        text = self.block(condition.relation).text()
        return f"(({operands}) IN ({text}))" if len(condition.operands) > 1 else f"({operands} IN ({text}))"

    def _subquery(self, subquery: Subquery) -> str:
        block = self.block(subquery.relation)
        if subquery.kind is SubqueryKind.EXISTS:
            return f"(EXISTS ({block.text()}))"  # Spark accepts EXISTS as an operand only in parentheses
        if subquery.kind is SubqueryKind.SCALAR:
            return f"({block.text()})"
        # outside WHERE, Spark's IN (query) returns false where it should return NULL
        sides = zip(subquery.operands, subquery.relation.columns, strict=True)
        equal = " AND ".join(f"({self.expression(operand)} = {self.name(column)})" for operand, column in sides)
        found, unsure = (
            f"EXISTS (SELECT 1 FROM {block.as_source} WHERE {test})" for test in (equal, f"({equal}) IS NULL")
        )
        return f"CASE WHEN {found} THEN true WHEN {unsure} THEN CAST(NULL AS BOOLEAN) ELSE false END"

    def sort_key(self, key: SortKey) -> str:
        """A term of ORDER BY."""
        direction = "DESC" if key.descending else "ASC"
        text = self._comparable(key.expression)
        return f"{text} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"

    def _comparable(self, expression: Expression) -> str:
        """An expression whose order in Spark is the order of the value in PostgreSQL."""
        text = self.expression(expression)
        if expression.type == JSONB:
            return python_call(worker.function_key(JSONB_SORT_KEY, [JSONB], ""), [text], BYTEA, 0)
        return sort_form(expression.type, text)

    def row_count(self, expression: Expression | None, clause: str) -> str | None:
        """The INT of a LIMIT or OFFSET; None without the clause or for NULL. 2201W or 2201X for a negative literal."""
        if expression is None:
            return None
        value = evaluated(expression, self.bind)
        if not isinstance(value, Literal):
            return f"CAST({self.expression(value)} AS INT)"
        if value.value is None:
            return None
        check_not_negative(value.value, clause)
        return str(min(int(value.value), INT4_MAX))


def _evaluates_all(function: Function) -> bool:
    """Whether a call always evaluates all of its arguments, unless one of them is NULL."""
    return function.nulls in (Nulls.STRICT, Nulls.OPTIONAL) and function not in (AND, OR)


def _is_in_query(expression: Expression) -> bool:
    return isinstance(expression, Subquery) and expression.kind is SubqueryKind.IN
