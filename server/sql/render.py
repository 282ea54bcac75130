"""Relational nodes to Spark SQL text.

Each node becomes a block of SELECT; clauses of several nodes share one as long as their order allows (`_Stage`), and
where it does not the block becomes a subquery of the next. Columns are called x<id>, unique in the whole statement, so
no qualifier is ever needed, also from inside a correlated subquery; the outermost are c0, c1, ...

A rendered expression has exactly the Spark type of its PostgreSQL type (`spark_type`), a numeric DECIMAL(precision,
scale) of the expression's own precision. Names TIMESTAMP_LTZ and TIMESTAMP_NTZ are used, never TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from typing import Any, assert_never

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, BYTEA, INTERVAL, JSONB, PgType
from server.sql import decimals
from server.sql.casts import DAY_US, find_cast, is_utc
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
    WindowCall,
    precision,
    walk,
)
from server.sql.functions import worker
from server.sql.functions.intervals import interval_length
from server.sql.functions.json import JSONB_SORT_KEY
from server.sql.functions.syntax import NOT, conjuncts
from server.sql.functions.table import exact_texts, fail, quote, shape_of
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Recursive,
    RecursiveRows,
    Relation,
    Scan,
    Series,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
)

_SPARK_TYPES: dict[str, str] = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INT", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE",
    "text": "STRING", "varchar": "STRING", "bpchar": "STRING", "json": "STRING", "jsonb": "STRING", "uuid": "STRING",
    "bytea": "BINARY", "date": "DATE", "time": "TIME(6)", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP_LTZ",
    "interval": "STRUCT<months: INT, days: INT, us: BIGINT>", "unknown": "STRING",
}  # fmt: skip
INT_MAX = (1 << 31) - 1


def spark_type(type: PgType, digits: int = 0) -> str:
    """The Spark type of a PgType; `digits`: a numeric's precision, where it is less than what the type says."""
    if type.element is not None:
        return f"ARRAY<{spark_type(type.element)}>"
    if type.name == "numeric":
        return f"DECIMAL({digits or type.precision or 38},{type.scale})"
    return _SPARK_TYPES[type.name]


def unbound(expression: Parameter | SessionValue) -> str:
    """How a value that is only known at execution is written in a plan's fingerprint."""
    if isinstance(expression, Parameter):
        return f"${expression.index + 1}"
    argument = expression.argument
    return f"{expression.name}({literal_text(argument) if isinstance(argument, Literal) else argument or ''})"


def spark_text(relation: Relation) -> str:
    """The statement for a relation in which nothing is left to bind."""
    return Renderer(relation, unbound).text()


Bind = Callable[[Parameter | SessionValue], Literal | str]


class _Stage(IntEnum):
    """How far a block is: a clause may join it if the block is not beyond that clause."""

    FROM = 0
    WHERE = 1
    ORDER = 2
    SELECT = 3
    DISTINCT = 4
    ORDER_OUTPUT = 5
    LIMIT = 6


@dataclass(slots=True)
class _Block:
    """One SELECT being written. `select` None: all columns of `source`."""

    source: str
    stage: _Stage = _Stage.FROM
    select: list[str] | None = None
    where: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    distinct: bool = False
    limit: str | None = None
    offset: str | None = None
    is_join: bool = False
    hint: str = ""

    def text(self) -> str:
        parts = [f"SELECT /*+ {self.hint} */ " if self.hint else "SELECT "]
        if self.distinct:
            parts.append("DISTINCT ")
        parts.append("*" if self.select is None else ", ".join(self.select))
        if self.source:
            parts.append(f" FROM {self.source}")
        if self.where:
            parts.append(f" WHERE {' AND '.join(self.where)}")
        if self.group:
            parts.append(f" GROUP BY {', '.join(self.group)}")
        if self.order:
            parts.append(f" ORDER BY {', '.join(self.order)}")
        if self.limit is not None:
            parts.append(f" LIMIT {self.limit}")
        if self.offset is not None:
            parts.append(f" OFFSET {self.offset}")
        return "".join(parts)

    @property
    def as_source(self) -> str:
        bare = self.stage is _Stage.FROM and self.select is None and not self.hint
        return self.source if bare and self.source else f"({self.text()})"


class Renderer:
    """Writes one plan. `bind` gives the literal of a parameter or session value, or a text to write instead.

    `single_partition`: each input in one partition, so nothing is shuffled. `hash_joins`: for such inputs, if they are
    small: Spark would broadcast one side of a join, which is a job of its own.
    """

    def __init__(self, root: Relation, bind: Bind, *, single_partition: bool = True, hash_joins: bool = False) -> None:
        self._bind = bind
        self._single_partition = single_partition
        self._hash_joins = hash_joins
        self._aliases = 0
        self._names: dict[int, str] = {}
        self._used = _used_columns(root)
        self._root = root
        ids = [column.id for column in root.columns]
        if len(set(ids)) == len(ids):
            self._names = {id: f"c{i}" for i, id in enumerate(ids)}

    def text(self) -> str:
        """The whole statement; its columns are c0, c1, ..."""
        return self._block(self._root).text()

    def _name(self, column: Column) -> str:
        return self._names.get(column.id) or f"x{column.id}"

    # -- relations --------------------------------------------------------------------------------------------------

    def _block(self, relation: Relation) -> _Block:
        match relation:
            case Scan():
                return self._scan(relation)
            case Values():
                return self._values(relation)
            case Series():
                return self._series(relation)
            case Unnest():
                return self._unnest(relation)
            case Recursive():
                return self._recursive(relation)
            case RecursiveRows():
                names = ", ".join(f"c{i} AS {self._name(c)}" for i, c in enumerate(relation.columns))
                return _Block(f"(SELECT {names} FROM recursive{relation.name})")
            case Project():
                block = self._open(relation.input, _Stage.SELECT)
                block.select = [
                    self._named(e, c) for e, c in zip(relation.expressions, relation.columns, strict=True)
                ] or ["1"]
                block.stage = _Stage.SELECT
                return block
            case Filter():
                block = self._open(relation.input, _Stage.WHERE)
                block.where += map(self._conjunct, conjuncts(relation.predicate))
                block.stage = _Stage.WHERE
                return block
            case Join():
                return self._join(relation)
            case AggregateNode():
                return self._aggregate_node(relation)
            case Window():
                block = self._open(relation.input, _Stage.WHERE)
                calls = relation.columns[len(relation.input.columns) :]
                block.select = ["*", *map(self._named, relation.calls, calls)]
                block.stage = _Stage.SELECT
                return block
            case Distinct():
                block = self._block(relation.input)
                if block.stage > _Stage.SELECT or block.order:
                    block = _Block(block.as_source)
                block.distinct = True
                block.stage = _Stage.DISTINCT
                return block
            case DistinctOn():
                return self._distinct_on(relation)
            case SetOperation():
                return self._set_operation(relation)
            case Sort():
                block = self._block(relation.input)
                listed = block.select is not None and not isinstance(relation.input, (Distinct, Project))
                if block.stage > _Stage.DISTINCT or block.order or listed:
                    block = _Block(block.as_source)
                block.order = [self._sort_key(key) for key in relation.keys]
                block.stage = _Stage.ORDER if block.stage < _Stage.SELECT else _Stage.ORDER_OUTPUT
                return block
            case Limit():
                block = self._open(relation.input, _Stage.ORDER_OUTPUT)
                block.limit = self._row_count(relation.limit, "LIMIT")
                block.offset = self._row_count(relation.offset, "OFFSET")
                if (block.limit or "").isdigit() and (block.offset or "").isdigit():  # their sum must be an INT
                    block.limit = str(min(int(block.limit or 0), INT_MAX - int(block.offset or 0)))
                block.stage = _Stage.LIMIT
                return block
            case _:
                assert_never(relation)

    def _open(self, relation: Relation, stage: _Stage) -> _Block:
        """The relation's block if a clause of that stage can join it, else one around it."""
        block = self._block(relation)
        taken = stage <= _Stage.SELECT and block.select is not None
        return _Block(block.as_source) if block.stage > stage or taken else block

    def _named(self, expression: Expression, column: Column) -> str:
        text = self.expression(expression)
        name = self._name(column)
        return text if text == name else f"{text} AS {name}"

    def _scan(self, scan: Scan) -> _Block:
        used = [(i, c) for i, c in enumerate(scan.columns) if c.id in self._used] or [(0, scan.columns[0])]
        columns = ", ".join(f"c{i} AS {self._name(c)}" if f"c{i}" != self._name(c) else f"c{i}" for i, c in used)
        hint = "/*+ COALESCE(1) */ " if self._single_partition else ""
        return _Block(f"(SELECT {hint}{columns} FROM {scan.id})")

    def _values(self, values: Values) -> _Block:
        if not values.columns:
            return _Block("" if len(values.rows) == 1 else "(SELECT 1 WHERE false)", select=None)
        rows = ", ".join("(" + ", ".join(self.expression(cell) for cell in row) + ")" for row in values.rows)
        names = ", ".join(self._name(column) for column in values.columns)
        return _Block(f"(SELECT * FROM VALUES {rows} AS v({names}))")

    def _series(self, series: Series) -> _Block:
        start, stop, step = (self.expression(e) for e in (series.start, series.stop, series.step))
        column = series.columns[0]
        spark = spark_type(column.type)
        end = f"CAST({stop} AS BIGINT) + CAST(signum({step}) AS BIGINT)"
        return _Block(f"(SELECT CAST(id AS {spark}) AS {self._name(column)} FROM range({start}, {end}, {step}, 1))")

    def _unnest(self, node: Unnest) -> _Block:
        """One array is exploded as it is, several after they were zipped, which fills the shorter with NULLs."""
        below = self._block(node.input)
        width = len(node.input.columns)
        kept = [self._name(c) for c in node.input.columns if c.id in self._used]
        added = node.columns[width:]
        names = [self._name(column) for column in added]
        arrays = [f"{self.expression(a)} AS k{i}" for i, a in enumerate(node.arrays)]
        source = f" FROM {below.as_source}" if below.as_source != "(SELECT *)" else ""
        computed = f"(SELECT {', '.join([*kept, *arrays])}{source})"
        if len(arrays) == 1:
            rows, values = "k0", [f"e AS {names[0]}"]
        else:
            empty = [f"coalesce(k{i}, CAST(array() AS {spark_type(a.type)}))" for i, a in enumerate(node.arrays)]
            zipped = ", ".join(f"{text} AS k{i}" for i, text in enumerate(empty))
            computed = f"(SELECT {', '.join([*kept, zipped])} FROM {computed})"
            rows = f"arrays_zip({', '.join(f'k{i}' for i in range(len(arrays)))})"
            values = [f"e.k{i} AS {name}" for i, name in enumerate(names[: len(arrays)])]
        if node.ordinality:
            values.append(f"CAST(p + 1 AS BIGINT) AS {names[-1]}")
        outer = "OUTER " if node.outer else ""
        view = f"LATERAL VIEW {outer}posexplode({rows}) u AS p, e"
        return _Block(f"(SELECT {', '.join([*kept, *values])} FROM {computed} {view})")

    def _recursive(self, node: Recursive) -> _Block:
        name = f"recursive{node.name}"
        sides = []
        for side in (node.anchor, node.step):
            cells = []
            for i, (column, out) in enumerate(zip(side.columns, node.columns, strict=True)):
                cells.append(f"CAST({self._name(column)} AS {spark_type(out.type, out.precision)}) AS c{i}")
            sides.append(f"(SELECT {', '.join(cells)} FROM {self._block(side).as_source})")
        columns = ", ".join(f"c{i}" for i in range(len(node.columns)))
        outputs = ", ".join(f"c{i} AS {self._name(c)}" for i, c in enumerate(node.columns))
        union = f"{sides[0]} UNION ALL {sides[1]}"
        return _Block(f"(WITH RECURSIVE {name} ({columns}) AS ({union}) SELECT {outputs} FROM {name})")

    def _join(self, join: Join) -> _Block:
        left, right = self._block(join.left), self._block(join.right)
        source = f"({right.as_source})" if right.is_join and right.stage is _Stage.FROM else right.as_source
        condition = "" if join.condition is None else f" ON {self.expression(join.condition)}"
        if not self._hash_joins:
            return _Block(f"{left.as_source} {join.kind} JOIN {source}{condition}", is_join=True)
        self._aliases += 1
        sides = (f"{left.as_source} AS l{self._aliases}", f"{source} AS r{self._aliases}")
        built = f"l{self._aliases}" if join.kind is JoinKind.RIGHT else f"r{self._aliases}"
        hint = f"SHUFFLE_HASH({built})"
        return _Block(f"{sides[0]} {join.kind} JOIN {sides[1]}{condition}", is_join=True, hint=hint)

    def _aggregate_node(self, node: AggregateNode) -> _Block:
        block = self._open(node.input, _Stage.WHERE)
        keys = [self.expression(key) for key in node.keys]
        calls = [self.expression(call) for call in node.calls]
        block.select = [f"{t} AS {self._name(c)}" for t, c in zip([*keys, *calls], node.columns, strict=True)] or ["1"]
        block.group = keys
        block.stage = _Stage.SELECT
        if not node.keys and not node.calls:
            block.select = ["count(1)"]  # a group of all rows is one row, also of none
        return block

    def _distinct_on(self, node: DistinctOn) -> _Block:
        source = self._block(node.input).as_source
        keys = ", ".join(self.expression(key) for key in node.keys)
        order = ", ".join(self._sort_key(key) for key in node.order) or keys
        ranked = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS rank FROM {source}"
        return _Block(f"({ranked})", _Stage.WHERE, where=["rank = 1"])

    def _set_operation(self, node: SetOperation) -> _Block:
        sides = []
        for side in (node.left, node.right):
            names = ", ".join(
                f"{self._name(c)} AS {self._name(out)}" for c, out in zip(side.columns, node.columns, strict=True)
            )
            sides.append(f"(SELECT {names or '1'} FROM {self._block(side).as_source})")
        word = f"{node.kind} ALL" if node.all else str(node.kind)
        return _Block(f"({sides[0]} {word} {sides[1]})")

    def _sort_key(self, key: SortKey) -> str:
        direction = "DESC" if key.descending else "ASC"
        text = self._comparable(key.expression)
        return f"{text} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"

    def _comparable(self, expression: Expression) -> str:
        """A form that Spark orders as PostgreSQL orders the value."""
        text = self.expression(expression)
        if expression.type == INTERVAL:
            return interval_length(text)
        if expression.type.element is not None:  # a NULL in an array is greater than any value
            return f"transform({text}, e -> struct(e IS NULL, e))"
        if expression.type == JSONB:
            return _python_call(worker.function_key(JSONB_SORT_KEY, [JSONB], ""), [text], BYTEA, 0)
        return f"rtrim({text})" if expression.type.name == "bpchar" else text

    def _row_count(self, expression: Expression | None, clause: str) -> str | None:
        """LIMIT and OFFSET: an INT; NULL is none."""
        if expression is None:
            return None
        value = expression
        if isinstance(expression, Parameter):
            bound = self._bind(expression)
            if isinstance(bound, str):
                return bound
            value = bound
        if not isinstance(value, Literal):
            return f"CAST({self.expression(expression)} AS INT)"
        if value.value is None:
            return None
        if value.value < 0:
            state = (
                SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE
                if clause == "LIMIT"
                else SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE
            )
            raise PgError(state, f"{clause} must not be negative")
        return str(min(int(value.value), INT_MAX))

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, expression: Expression) -> str:
        match expression:
            case Literal():
                return literal_text(expression)
            case Parameter() | SessionValue():
                bound = self._bind(expression)
                return bound if isinstance(bound, str) else literal_text(bound)
            case ColumnRef():
                return self._name(expression.column)
            case Call():
                return self._call(expression)
            case Cast():
                return self._cast(expression)
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
        """No Python function can stand in a lambda: there it takes the whole array."""
        call, array = quantified.call, self.expression(quantified.array)
        if isinstance(call, Call) and call.arguments[1:] == (ColumnRef(quantified.element),):
            text = self._call(call)
            if text.startswith(_PYTHON_CALL):
                key = worker.quantified_key(
                    call.function, [a.type for a in call.arguments], call.timezone, quantified.all
                )
                return _python_call(key, [self.expression(call.arguments[0]), array], BOOL, 0)
        word = "forall" if quantified.all else "exists"
        return f"{word}({array}, {self._name(quantified.element)} -> {self.expression(call)})"

    def _call(self, call: Call) -> str:
        texts = [self.expression(argument) for argument in call.arguments]
        spark = call.function.spark
        text = spark(call.arguments, texts) if callable(spark) else fill(spark or "", texts)
        if not text or not is_utc(call.timezone):
            key = worker.function_key(call.function, [a.type for a in call.arguments], call.timezone)
            return _python_call(key, texts, call.type, precision(call))
        return text

    def _cast(self, cast: Cast) -> str:
        source, target = cast.operand.type, cast.type
        text = self.expression(cast.operand)
        rule = find_cast(source.without_modifiers, target.without_modifiers)
        assert rule is not None, (source, target)
        if source.name == target.name == "numeric" or (
            source.element is not None and target.element is not None and target.element.name == "numeric"
        ):
            return f"CAST({text} AS {spark_type(target, precision(cast) if target.element is None else 0)})"
        if (target.element or target).is_string_family:
            exact_texts((cast.operand,))
        inner = target if target.element is None else target.element
        digits = precision(cast) if target.name == "numeric" else 0
        if rule.spark is not None and is_utc(cast.timezone):
            text = rule.spark.replace("{0}", text).replace("{t}", spark_type(inner, digits))
        else:
            text = _python_call(worker.cast_key(source, target, cast.timezone), [text], target, digits)
        return _fit_length(text, target, cast.assignment) if target.length is not None else text

    def _aggregate(self, call: Aggregate, over: str) -> str:
        texts = [self.expression(argument) for argument in call.arguments]
        spark = call.function.spark
        if over and call.filter is not None:  # Spark has no FILTER beside OVER
            condition = self.expression(call.filter)
            passing = [f"CASE WHEN {condition} THEN {text} END" for text in texts]
            template = spark(call.arguments, passing) if callable(spark) else spark
            if template and "{a}" not in template:
                template = template.replace("count(1)", f"count(CASE WHEN {condition} THEN 1 END)")
                return fill(template, passing, {"d": "", "f": over})
        template = spark(call.arguments, texts) if callable(spark) else spark
        if not template:
            key = worker.function_key(call.function, [a.type for a in call.arguments], "")
            rows = self._rows(call, over)
            lists = [f"transform({rows}, e -> e.v{i})" for i in range(len(texts))]
            return _python_call(key, lists, call.type, precision(call))
        tail = over
        if call.filter is not None:
            tail = f" FILTER (WHERE {self.expression(call.filter)}){over}"
        if "{a}" in template:
            element = spark_type(call.arguments[0].type)
            values = f"transform({self._rows(call, over)}, e -> CAST(e.v0 AS {element}))"
            template = template.replace("{a}", f"nullif({values}, CAST(array() AS ARRAY<{element}>))")
        return fill(template, texts, {"d": "DISTINCT " if call.distinct else "", "f": tail})

    def _rows(self, call: Aggregate, over: str) -> str:
        """The arguments of every row of the group as structs (v0, v1, ...), ordered by ORDER BY, then by themselves;
        in a window as the window is ordered.

        They are structs so that collect_list keeps NULLs; string_agg does not want those.
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
            parts.append("ORDER BY " + ", ".join(map(self._sort_key, call.order)))
        elif call.call.function.name in ("row_number", "rank", "dense_rank", "ntile", "lag", "lead", "percent_rank",
                                         "cume_dist"):  # fmt: skip
            parts.append("ORDER BY NULL")  # Spark insists on an order
        if call.frame:
            parts.append(call.frame)
        return self._aggregate(call.call, f" OVER ({' '.join(parts)})")

    def _conjunct(self, condition: Expression) -> str:
        """A condition of WHERE: there Spark's IN and NOT IN (query) mean what they should."""
        if isinstance(condition, Call) and condition.function is NOT and _is_in_query(condition.arguments[0]):
            return f"(NOT {self._conjunct(condition.arguments[0])})"
        if not isinstance(condition, Subquery) or condition.kind is not SubqueryKind.IN:
            return self.expression(condition)
        operands = ", ".join(map(self.expression, condition.operands))
        text = self._block(condition.relation).text()
        return f"(({operands}) IN ({text}))" if len(condition.operands) > 1 else f"({operands} IN ({text}))"

    def _subquery(self, subquery: Subquery) -> str:
        block = self._block(subquery.relation)
        if subquery.kind is SubqueryKind.EXISTS:
            return f"EXISTS ({block.text()})"
        if subquery.kind is SubqueryKind.SCALAR:
            return f"({block.text()})"
        # as a value: Spark's IN (query) is false where it should be NULL
        sides = zip(subquery.operands, subquery.relation.columns, strict=True)
        equal = " AND ".join(f"({self.expression(operand)} = {self._name(column)})" for operand, column in sides)
        found, unsure = (
            f"EXISTS (SELECT 1 FROM {block.as_source} WHERE {test})" for test in (equal, f"({equal}) IS NULL")
        )
        return f"CASE WHEN {found} THEN true WHEN {unsure} THEN CAST(NULL AS BOOLEAN) ELSE false END"


_PYTHON_CALL = "get(transform(array("


def _python_call(key: str, texts: Sequence[str], type: PgType, digits: int) -> str:
    """A call of a Python function, which gives a value or an error; the error is raised where the value is used."""
    carrier = worker.carrier(type)
    call = f"{carrier.udf}({', '.join([quote(key), *texts])})"
    message = "IF(r.e IS NULL, r.v, raise_error(r.e))"
    value = f"{_PYTHON_CALL}{call}), r -> {message}), 0)"  # so that the call stands here once
    return carrier.restored.replace("{0}", value).replace("{t}", spark_type(type.element or type, digits))


def _is_in_query(expression: Expression) -> bool:
    return isinstance(expression, Subquery) and expression.kind is SubqueryKind.IN


def _used_columns(root: Relation) -> frozenset[int]:
    """The ids that are named anywhere or leave the plan; a scan needs no others."""
    used = {column.id for column in root.columns}
    for node in walk(root):
        if isinstance(node, ColumnRef):
            used.add(node.column.id)
        elif isinstance(node, (SetOperation, Distinct)):
            for side in (node.left, node.right) if isinstance(node, SetOperation) else (node.input,):
                used.update(column.id for column in side.columns)
        elif isinstance(node, (Subquery, Recursive)):
            sides = (node.relation,) if isinstance(node, Subquery) else (node, node.anchor, node.step)
            used.update(column.id for side in sides for column in side.columns)
    return frozenset(used)


def fill(template: str, texts: Sequence[str], marks: Mapping[str, str] | None = None) -> str:
    """{0}, {1}, ... are the arguments, {*} all of them by commas, {*:AND} by a word."""
    if "{*" in template:
        template = template.replace("{*}", ", ".join(texts))
        for word in ("AND", "OR"):
            if f"{{*:{word}}}" in template:
                template = template.replace(f"{{*:{word}}}", f" {word} ".join(texts))
        return template
    out, rest = [], template
    while True:
        before, brace, after = rest.partition("{")
        out.append(before)
        if not brace:
            return "".join(out)
        name, _, rest = after.partition("}")
        out.append(texts[int(name)] if name.isdigit() else (marks or {})[name])


def _fit_length(text: str, type: PgType, assignment: bool) -> str:
    """varchar(n) and char(n): cut by an explicit cast; an assignment only cuts spaces (22001)."""
    length = type.length
    fitted = f"substr({text}, 1, {length})"
    if assignment:
        refusal = fail(SqlState.STRING_DATA_RIGHT_TRUNCATION, f"value too long for type {type.display}")
        fitted = f"IF(rtrim(substr({text}, {(length or 0) + 1})) = '', {fitted}, {refusal})"
    if type.name == "bpchar":
        return f"rpad({fitted}, {length}, ' ')"
    return fitted


# -- literals -------------------------------------------------------------------------------------------------------


def literal_text(literal: Literal) -> str:
    """A value as a Spark literal of exactly its type."""
    type, value = literal.type, literal.value
    if value is None:
        return f"CAST(NULL AS {spark_type(type)})"
    if type.element is not None:
        items = ", ".join(literal_text(Literal(item, type.element)) for item in value)
        return f"CAST(array({items}) AS {spark_type(type)})"
    return _LITERALS[type.name](value, literal)


def _integer(value: int, literal: Literal) -> str:
    suffix = {"int2": "S", "int4": "", "int8": "L"}[literal.type.name]
    return f"{value}{suffix}" if value >= 0 else f"CAST('{value}' AS {spark_type(literal.type)})"


def _decimal(value: Decimal, literal: Literal) -> str:
    shape = shape_of(literal)
    return f"CAST('{value:f}' AS {decimals.Shape(max(shape.precision, shape.scale), shape.scale)})"


def _interval(value: Any, literal: Literal) -> str:
    months, days, nanoseconds = value
    parts = f"named_struct('months', {months}, 'days', {days}, 'us', {nanoseconds // 1000}L)"
    return f"CAST({parts} AS {spark_type(literal.type)})"


_LITERALS: dict[str, Callable[[Any, Literal], str]] = {
    "bool": lambda value, literal: "true" if value else "false",
    **dict.fromkeys(("int2", "int4", "int8"), _integer),
    "float4": lambda value, literal: f"CAST('{value!r}' AS FLOAT)",
    "float8": lambda value, literal: f"CAST('{value!r}' AS DOUBLE)",
    "numeric": _decimal,
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "json", "jsonb", "uuid", "unknown"), lambda value, literal: quote(value)
    ),
    "bytea": lambda value, literal: f"X'{value.hex()}'",
    "date": lambda value, literal: f"date_from_unix_date({value})",
    "time": lambda value, literal: f"TIME'{_clock(value)}'",
    "timestamp": lambda value, literal: f"CAST(timestamp_micros({value}L) AS TIMESTAMP_NTZ)",
    "timestamptz": lambda value, literal: f"timestamp_micros({value}L)",
    "interval": _interval,
}


def _clock(us: int) -> str:
    if us == DAY_US:  # the one time of PostgreSQL's that Spark has not
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "time 24:00:00 in a computed query is not supported")
    seconds, fraction = divmod(us, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
