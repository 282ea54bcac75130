"""Rendering of relations to Spark SQL text. Each node is a block, or a clause of its input's block."""

from __future__ import annotations

from typing import assert_never

from server.sql.coerce import INT4_MAX
from server.sql.expressions import Column, ColumnRef, Expression, Literal, SessionValue, Subquery, walk
from server.sql.functions.syntax import conjuncts
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
    Sample,
    Scan,
    Series,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
)
from server.sql.render.block import Block, Stage
from server.sql.render.expressions import Bind, ExpressionRenderer
from server.sql.render.shared_values import SharedValues
from server.sql.render.spark_types import spark_type


class Renderer(ExpressionRenderer):
    """Renders one plan. `bind` returns the literal of a parameter or session value, or the text to write for it.

    `single_partition`: each input is read in one partition, so nothing is shuffled. `hash_joins`: joins get a
    SHUFFLE_HASH hint. For small inputs in one partition this avoids a broadcast, for which Spark runs a separate job.
    """

    def __init__(self, root: Relation, bind: Bind, *, single_partition: bool = True, hash_joins: bool = False) -> None:
        super().__init__(bind)
        self._single_partition = single_partition
        self._hash_joins = hash_joins
        self._aliases = 0
        self._used = _used_columns(root)
        self._root = root
        ids = [column.id for column in root.columns]
        if len(set(ids)) == len(ids):
            self._names = {id: f"c{i}" for i, id in enumerate(ids)}

    def text(self) -> str:
        """The whole statement; its columns are c0, c1, ..."""
        return self.block(self._root).text()

    def block(self, relation: Relation) -> Block:
        """A SELECT with the rows of the relation, to which further clauses may be added (`Block.stage`)."""
        match relation:
            case Scan():
                return self._scan(relation)
            case Sample():
                return self._sample(relation)
            case Values():
                return self._values(relation)
            case Series():
                return self._series(relation)
            case Unnest():
                return self._unnest(relation)
            case Recursive():
                return self._recursive_rows(relation) if relation.distinct else self._recursive(relation)
            case RecursiveRows():
                return self._recursive_rows(relation)
            case Project():
                return self._project(relation)
            case Filter():
                return self._filter(relation)
            case Join():
                return self._join(relation)
            case AggregateNode():
                return self._aggregate_node(relation)
            case Window():
                return self._window_node(relation)
            case Distinct():
                return self._distinct(relation)
            case DistinctOn():
                return self._distinct_on(relation)
            case SetOperation():
                return self._set_operation(relation)
            case Sort():
                return self._sort(relation)
            case Limit():
                return self._limit(relation)
            case _:
                assert_never(relation)

    def _open(self, relation: Relation, stage: Stage) -> Block:
        """The relation's block if a clause of that stage can be added to it, otherwise a new block around it."""
        block = self.block(relation)
        taken = stage <= Stage.SELECT and block.select is not None
        return Block(block.as_source) if block.stage > stage or taken else block

    def _filter(self, node: Filter) -> Block:
        block = self._open(node.input, Stage.WHERE)
        block.where += map(self.conjunct, conjuncts(node.predicate))
        block.stage = Stage.WHERE
        return block

    def _window_node(self, node: Window) -> Block:
        block = self._open(node.input, Stage.WHERE)
        calls = node.columns[len(node.input.columns) :]
        block.select = ["*", *map(self._named, node.calls, calls)]
        block.stage = Stage.SELECT
        return block

    def _distinct(self, node: Distinct) -> Block:
        block = self.block(node.input)
        if block.stage > Stage.SELECT or block.order:
            block = Block(block.as_source)
        block.distinct = True
        block.stage = Stage.DISTINCT
        return block

    def _sort(self, node: Sort) -> Block:
        block = self.block(node.input)
        listed = block.select is not None and not isinstance(node.input, (Distinct, Project))
        if block.stage > Stage.DISTINCT or block.order or listed:
            block = Block(block.as_source)
        block.order = [self.sort_key(key) for key in node.keys]
        block.stage = Stage.ORDER if block.stage < Stage.SELECT else Stage.ORDER_OUTPUT
        return block

    def _limit(self, node: Limit) -> Block:
        block = self._open(node.input, Stage.ORDER_OUTPUT)
        block.limit = self.row_count(node.limit, "LIMIT")
        block.offset = self.row_count(node.offset, "OFFSET")
        if (block.limit or "").isdigit() and (block.offset or "").isdigit():  # their sum must fit in an INT
            block.limit = str(min(int(block.limit or 0), INT4_MAX - int(block.offset or 0)))
        block.stage = Stage.LIMIT
        return block

    def _project(self, project: Project) -> Block:
        block = self._open(project.input, Stage.SELECT)
        shared = None if block.order else SharedValues()  # a subquery would not keep the order
        terms = [self._named(e, c, shared) for e, c in zip(project.expressions, project.columns, strict=True)]
        if shared is not None and shared.subqueries:
            used = {part.column.id for e in project.expressions for part in walk(e) if isinstance(part, ColumnRef)}
            kept = [self.name(column) for column in project.input.columns if column.id in used]
            for added in shared.subqueries:
                block.select = [*kept, *(f"{text} AS {name}" for name, text in added.items())]
                block.stage = Stage.SELECT
                block = Block(block.as_source)
                kept += added
        block.select = terms or ["1"]
        block.stage = Stage.SELECT
        return block

    def _named(self, expression: Expression, column: Column, shared: SharedValues | None = None) -> str:
        text = self.expression(expression, shared)
        name = self.name(column)
        return text if text == name else f"{text} AS {name}"

    def _scan(self, scan: Scan) -> Block:
        used = [(i, c) for i, c in enumerate(scan.columns) if c.id in self._used] or [(0, scan.columns[0])]
        columns = ", ".join(f"c{i} AS {self.name(c)}" if f"c{i}" != self.name(c) else f"c{i}" for i, c in used)
        hint = "/*+ COALESCE(1) */ " if self._single_partition else ""
        return Block(f"(SELECT {hint}{columns} FROM {scan.id})")

    def _sample(self, sample: Sample) -> Block:
        seed = sample.seed
        bound = self.bind(seed) if isinstance(seed, SessionValue) else seed
        number = bound.value % INT4_MAX if isinstance(bound, Literal) else 0  # 0 in a template
        chosen = f"TABLESAMPLE ({sample.percent} PERCENT) REPEATABLE ({number})"
        return Block(f"(SELECT * FROM {self.block(sample.input).as_source} {chosen})")

    def _values(self, values: Values) -> Block:
        if not values.columns:
            return Block("" if len(values.rows) == 1 else "(SELECT 1 WHERE false)", select=None)
        rows = [", ".join(self.expression(cell) for cell in row) for row in values.rows]
        names = ", ".join(self.name(column) for column in values.columns)
        if any("raise_error(" in row for row in rows):  # which Spark does not evaluate in VALUES
            return Block(f"(SELECT stack({len(rows)}, {', '.join(rows)}) AS ({names}))")
        return Block(f"(SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS v({names}))")

    def _series(self, series: Series) -> Block:
        start, stop, step = (self.expression(e) for e in (series.start, series.stop, series.step))
        column = series.columns[0]
        spark = spark_type(column.type)
        end = f"CAST({stop} AS BIGINT) + CAST(signum({step}) AS BIGINT)"
        return Block(f"(SELECT CAST(id AS {spark}) AS {self.name(column)} FROM range({start}, {end}, {step}, 1))")

    def _unnest(self, node: Unnest) -> Block:
        """A single array is exploded directly. Several are zipped first, which pads the shorter ones with NULLs."""
        below = self.block(node.input)
        width = len(node.input.columns)
        kept = [self.name(c) for c in node.input.columns if c.id in self._used]
        added = node.columns[width:]
        names = [self.name(column) for column in added]
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
        return Block(f"(SELECT {', '.join([*kept, *values])} FROM {computed} {view})")

    def _recursive(self, node: Recursive) -> Block:
        name = f"recursive{node.name}"
        sides = []
        for side in (node.anchor, node.step):
            cells = []
            for i, (column, out) in enumerate(zip(side.columns, node.columns, strict=True)):
                cells.append(f"CAST({self.name(column)} AS {spark_type(out.type, out.precision)}) AS c{i}")
            sides.append(f"(SELECT {', '.join(cells)} FROM {self.block(side).as_source})")
        columns = ", ".join(f"c{i}" for i in range(len(node.columns)))
        outputs = ", ".join(f"c{i} AS {self.name(c)}" for i, c in enumerate(node.columns))
        union = f"{sides[0]} UNION ALL {sides[1]}"
        return Block(f"(WITH RECURSIVE {name} ({columns}) AS ({union}) SELECT {outputs} FROM {name})")

    def _recursive_rows(self, node: Recursive | RecursiveRows) -> Block:
        """The rows of the view or of the common table expression that has those of a recursive query."""
        cells = (f"CAST(c{i} AS {spark_type(c.type, c.precision)}) AS {self.name(c)}" if c.type.name == "numeric"
                 else f"c{i} AS {self.name(c)}" for i, c in enumerate(node.columns))  # fmt: skip
        return Block(f"(SELECT {', '.join(cells)} FROM recursive{node.name})")

    def _join(self, join: Join) -> Block:
        left, right = self.block(join.left), self.block(join.right)
        source = f"({right.as_source})" if right.is_join and right.stage is Stage.FROM else right.as_source
        condition = "" if join.condition is None else f" ON {self.expression(join.condition)}"
        if not self._hash_joins:
            return Block(f"{left.as_source} {join.kind} JOIN {source}{condition}", is_join=True)
        self._aliases += 1
        sides = (f"{left.as_source} AS l{self._aliases}", f"{source} AS r{self._aliases}")
        built = f"l{self._aliases}" if join.kind is JoinKind.RIGHT else f"r{self._aliases}"
        hint = f"SHUFFLE_HASH({built})"
        return Block(f"{sides[0]} {join.kind} JOIN {sides[1]}{condition}", is_join=True, hint=hint)

    def _aggregate_node(self, node: AggregateNode) -> Block:
        block = self._open(node.input, Stage.WHERE)
        keys = [self.expression(key) for key in node.keys]
        calls = [self.expression(call) for call in node.calls]
        block.select = [f"{t} AS {self.name(c)}" for t, c in zip([*keys, *calls], node.columns, strict=True)] or ["1"]
        block.group = keys
        block.stage = Stage.SELECT
        if not node.keys and not node.calls:
            block.select = ["count(1)"]  # without keys there is one output row, even without input rows
        return block

    def _distinct_on(self, node: DistinctOn) -> Block:
        source = self.block(node.input).as_source
        keys = ", ".join(self.expression(key) for key in node.keys)
        order = ", ".join(self.sort_key(key) for key in node.order) or keys
        ranked = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS rank FROM {source}"
        return Block(f"({ranked})", Stage.WHERE, where=["rank = 1"])

    def _set_operation(self, node: SetOperation) -> Block:
        sides = []
        for side in (node.left, node.right):
            names = ", ".join(
                f"{self.name(c)} AS {self.name(out)}" for c, out in zip(side.columns, node.columns, strict=True)
            )
            sides.append(f"(SELECT {names or '1'} FROM {self.block(side).as_source})")
        word = f"{node.kind} ALL" if node.all else str(node.kind)
        return Block(f"({sides[0]} {word} {sides[1]})")


def _used_columns(root: Relation) -> frozenset[int]:
    """The ids of the columns that are named anywhere or are output columns. A scan reads only these."""
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
