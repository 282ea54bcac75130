"""Changes of a table as columns of its collection: the texts of `protocol.pgoutput.rows`, parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.objects.columns import Column
from protocol.pgoutput import BadText
from protocol.pgoutput.messages import Relation
from protocol.pgoutput.rows import Mask, Positions, Tuples, decode
from protocol.pgwire.decode import BadValue, parse_text_column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type

RECREATE = "Drop the collection and create it again."


@dataclass(frozen=True)
class Layout:
    """The columns of a collection. `reference` is the name of its table in PostgreSQL."""

    reference: str
    columns: tuple[Column, ...]

    @cached_property
    def types(self) -> tuple[PgType, ...]:
        return tuple(parse_type(column.type) for column in self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        return updates.rows_schema([type.arrow for type in self.types])

    @cached_property
    def no_rows(self) -> pa.Table:
        """An empty table with all columns."""
        return self.schema.empty_table()

    def key_of(self, relation: Relation) -> tuple[int, ...]:
        """The positions of the columns of the replica identity; () if it is not a key of the collection."""
        names = [column.name for column in self.columns]
        key = [column.name for column in relation.columns if column.is_key]
        return tuple(names.index(name) for name in key) if set(key) <= set(names) else ()

    def parse(self, position: int, texts: pa.Array) -> pa.Array:
        """The values of a column. PgError if a text is not a value of its type."""
        try:
            return parse_text_column(self.types[position], texts)
        except BadValue as error:
            raise self.unusable(position, error.error) from None

    def unusable(self, position: int, error: PgError) -> PgError:
        """The error for a value that the collection cannot contain."""
        name = self.columns[position].name
        return PgError(
            error.sqlstate,
            f'table "{self.reference}", column "{name}": {error.message}',
            hint="Name the column in TEXT COLUMNS, or leave it out of the publication.",
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of those messages that have one. `unchanged`: as in `Tuples`; the table has NULL there."""

    messages: Positions
    table: pa.Table
    unchanged: tuple[Mask | None, ...]


@dataclass(frozen=True, slots=True)
class TypedRows:
    """As `RowMessages`, with values of the collection's columns. `keys.table` has only the columns of the key."""

    kinds: NDArray[np.uint8]
    new: Rows
    keys: Rows
    old: Rows


def typed(layout: Layout, relation: Relation, data: bytes, starts: Positions, ends: Positions) -> TypedRows:
    """Decodes messages. BadMessage if they are malformed. PgError if one of their values cannot be used."""
    try:
        messages = decode(np.frombuffer(data, np.uint8), starts, ends, len(relation.columns))
    except BadText as error:
        raise PgError(
            SqlState.CHARACTER_NOT_IN_REPERTOIRE,
            f'table "{layout.reference}": invalid byte sequence for encoding "UTF8"',
            detail=f"{error}.",
        ) from None
    names = [column.name for column in relation.columns]
    columns = [names.index(column.name) for column in layout.columns]
    every = range(len(columns))
    return TypedRows(
        messages.kinds,
        _rows(layout, messages.new, columns, every),
        _rows(layout, messages.keys, columns, layout.key_of(relation)),
        _rows(layout, messages.old, columns, every),
    )


def _rows(layout: Layout, tuples: Tuples, columns: Sequence[int], wanted: Sequence[int]) -> Rows:
    """The wanted columns of the collection. `columns`: the position of each in the relation."""
    if not len(tuples.messages):  # as two of the three kinds of most messages
        return Rows(tuples.messages, layout.no_rows.select(wanted), (None,) * len(wanted))
    arrays, masks = [], []
    for position in wanted:
        texts, unchanged = tuples.columns[columns[position]], tuples.unchanged[columns[position]]
        if not layout.columns[position].nullable and texts.null_count != (0 if unchanged is None else unchanged.sum()):
            name = layout.columns[position].name
            raise PgError(
                SqlState.NOT_NULL_VIOLATION,
                f'table "{layout.reference}": null value in column "{name}", which was NOT NULL',
                hint=RECREATE,
            )
        arrays.append(layout.parse(position, texts))
        masks.append(unchanged)
    names = [layout.schema.names[position] for position in wanted]
    return Rows(tuples.messages, pa.table(arrays, names=names), tuple(masks))
