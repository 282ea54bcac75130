"""Late columns: columns that a statement returns as it reads them do not pass through Spark.

Each view has a column with the number of the row instead, which the statement returns. The operator takes the columns
from what the statement read (`LateForm`). Spark reads only the columns that conditions and expressions name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import ObjectId
from protocol.pgwire.types import INT8
from server.sql.columns import NewColumns, ids
from server.sql.expressions import Column, ColumnRef, Literal, walk, walk_all
from server.sql.relations import (
    Filter,
    Join,
    JoinKind,
    Project,
    Relation,
    Scan,
    Unnest,
    Window,
    bottom_up,
    inputs_of,
    with_inputs,
)
from server.sql.rewrite.columns import pruned

READ_BYTES_MAX = 1 << 26  # of the views; more rows are read by the complete statement, whose answer may be on disk
RESULT_BYTES_MAX = 1 << 28  # of the late columns in the result, likewise
NARROW = 2  # columns of a fixed width: returning them costs less than returning the row number and taking them

_NUMBER = pa.field("number", pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True)
class LateView:
    """The columns of a view that the statement reads, by their positions. `number`: the position of the row number in
    the statement's answer; None if it does not return it."""

    read: tuple[int, ...]
    number: int | None


@dataclass(frozen=True, slots=True)
class LateForm:
    """A form of a statement that returns row numbers instead of columns of its views.

    `columns`: for each column of the result the name of a view and a position in it, or None and a position in the
    answer.
    """

    text: str
    views: Mapping[str, LateView]
    columns: tuple[tuple[str | None, int], ...]

    def suits(self, views: Mapping[str, pa.Table]) -> bool:
        """Whether there are so few rows that the complete result fits into memory, unless a join multiplies them."""
        size: int = sum(view.nbytes for view in views.values())
        return size <= READ_BYTES_MAX

    def read(self, views: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """The views as the statement reads them."""
        return {name: _read(views[name], late) for name, late in self.views.items()}

    def result(self, answer: pa.Table, views: Mapping[str, pa.Table]) -> pa.Table | None:
        """The result of the complete statement. None if it may be too large for memory."""
        taken = {}
        for name, late in self.views.items():
            if late.number is not None:
                rows = views[name].select(sorted({at for view, at in self.columns if view == name}))
                numbers = answer.column(late.number)
                if answer.num_rows * rows.nbytes > RESULT_BYTES_MAX and _size(rows, numbers) > RESULT_BYTES_MAX:
                    return None
                taken[name] = dict(zip(rows.column_names, _taken(rows, numbers).columns, strict=True))
        names = {name: view.column_names for name, view in views.items()}
        columns = [answer.column(at) if name is None else taken[name][names[name][at]] for name, at in self.columns]
        return pa.table(columns, [f"c{number}" for number in range(len(columns))])


def _read(view: pa.Table, late: LateView) -> pa.Table:
    rows = view.select(list(late.read))
    if late.number is not None:
        rows = rows.append_column(_NUMBER, pa.array(np.arange(view.num_rows)))
    return rows.rename_columns([f"c{number}" for number in range(rows.num_columns)])


def _taken(rows: pa.Table, numbers: pa.ChunkedArray) -> pa.Table:
    """The rows with these numbers. A number is NULL where an outer join has no row."""
    is_all = len(numbers) == rows.num_rows and numbers.null_count == 0
    if is_all and np.array_equal(numbers.to_numpy(), np.arange(rows.num_rows)):
        return rows
    return rows.combine_chunks().take(numbers)


def _size(rows: pa.Table, numbers: pa.ChunkedArray) -> int:
    """The size in bytes of the rows with these numbers, without the validity of values."""
    size = 0
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            size += pc.sum(pc.binary_length(column).take(numbers)).as_py() or 0
        else:
            size += column.nbytes * len(numbers) // max(1, len(column))
    return size


def late_form(relation: Relation, new: NewColumns, render: Callable[[Relation], str]) -> LateForm | None:
    """The form of a statement's relation with late columns. None if it has no advantage."""
    scans = [node for node in walk(relation) if isinstance(node, Scan)]
    if len({scan.id for scan in scans}) < len(scans):
        return None
    origins = _origins(relation)
    places = {c.id: (scan.id, at) for scan in scans for at, c in enumerate(scan.columns)}
    late: dict[ObjectId, list[int]] = {scan.id: [] for scan in scans}  # the ids of the columns in the result
    for column in relation.columns:
        if column.id in origins:
            late[places[origins[column.id]][0]].append(column.id)
    numbers = {id: new.column("", Literal(0, INT8)) for id, found in late.items() if _gains(relation, found)}
    if not numbers:
        return None
    computed = [c for c in relation.columns if c.id not in origins or places[origins[c.id]][0] not in numbers]
    whole = _numbered(relation, numbers)
    answered = (*computed, *numbers.values())
    small = _without_unread(pruned(Project(whole, answered, tuple(map(ColumnRef, answered)))))
    known = ids(computed)
    at_of = {c.id: at for at, c in enumerate(small.columns)}
    columns: list[tuple[str | None, int]] = []
    for column in relation.columns:
        if column.id in known:
            columns.append((None, at_of[column.id]))
        else:
            id, at = places[origins[column.id]]
            columns.append((str(id), at))
    views = {}
    for scan in (node for node in walk(small) if isinstance(node, Scan)):
        number = numbers.get(scan.id)
        read = tuple(places[c.id][1] for c in scan.columns if c is not number)
        views[str(scan.id)] = LateView(read, None if number is None else at_of[number.id])
    return LateForm(render(small), views, tuple(columns))


def _origins(node: Relation) -> dict[int, int]:
    """The scan's column that an output column is, by their ids. An outer join may add NULLs to it."""
    match node:
        case Scan(columns=columns):
            return {c.id: c.id for c in columns}
        case Project(input=input, columns=columns, expressions=expressions):
            below = _origins(input)
            pairs = zip(columns, expressions, strict=True)
            return {
                c.id: below[e.column.id]
                for c, e in pairs
                if isinstance(e, ColumnRef) and e.column.id in below and c.type == e.column.type
            }
        case Filter(input=input) | Unnest(input=input) | Window(input=input):
            return _origins(input)
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI, left=left, lateral=False):
            return _origins(left)
        case Join(left=left, right=right, lateral=False):
            return {**_origins(left), **_origins(right)}
    return {}


def _gains(relation: Relation, late: Sequence[int]) -> bool:
    widths = [c.type.name for c in relation.columns if c.id in late]
    return len(widths) > NARROW or not all(name in _NARROW_TYPES for name in widths)


_NARROW_TYPES = frozenset(("bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timestamp"))


def _numbered(node: Relation, numbers: Mapping[ObjectId, Column]) -> Relation:
    """The relation with the row numbers of its scans as additional columns."""
    if isinstance(node, Scan):
        return replace(node, columns=(*node.columns, numbers[node.id])) if node.id in numbers else node
    changed = with_inputs(node, [_numbered(below, numbers) for below in inputs_of(node)])
    if isinstance(changed, Project):
        known = ids(numbers.values())
        more = tuple(c for c in changed.input.columns if c.id in known)
        return Project(changed.input, (*changed.columns, *more), (*changed.expressions, *map(ColumnRef, more)))
    return changed


def _without_unread(relation: Relation) -> Relation:
    """The relation over scans of only the columns that it names."""
    read = {node.column.id for node in walk_all(relation) if isinstance(node, ColumnRef)}

    def change(node: Relation) -> Relation:
        return Scan(node.id, tuple(c for c in node.columns if c.id in read)) if isinstance(node, Scan) else node

    return bottom_up(relation, change)
