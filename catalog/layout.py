"""The columns of stored payloads, which stay readable when the columns of their table change.

A payload names its columns by number: `c3` is column number 3 of the table. The numbers of a table's columns are 0, 1,
... until ALTER TABLE changes them. A number is never used for another column, nor for another type of the same column.
In memory the columns of a collection are named by position. `Layout.read` turns a payload of any age into rows with the
columns that a table has now: columns that were dropped since are omitted, and those that were added since have the
value that ADD COLUMN gave to existing rows. Payloads of tables that were never altered need neither.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalog.updates import DIFF, DIFF_FIELD

SHORT_BYTES = 16
LONG_CHARS_MAX = 32 * 1024
"""The limit for the values of a table's columns in payloads that lack them: the characters of those that are `encoded`
in more than SHORT_CHARS. A read makes a copy of each value for each row, and the catalog is in memory."""
SHORT_CHARS = 420  # as many as a value of SHORT_BYTES has, of any type that is no array

NOW = -1
"""`Numbering.readable_from` of a table that a transaction has rewritten: the committer replaces it by its timestamp."""


class Altered(Exception):
    """A payload lacks a column: it was written after the column was dropped."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers of a table's columns, for a table that was altered.

    `next`: the number of the next new column. `missing`: by number, the value of a column in payloads that lack it, as
    `encoded`. `readable_from`: earlier times cannot be read, because the type of a column has changed then.
    """

    numbers: tuple[int, ...]
    next: int
    missing: tuple[tuple[int, str], ...] = ()
    readable_from: int = 0

    @classmethod
    def initial(cls, width: int) -> Numbering:
        """The numbers of the columns of a table that was never altered."""
        return cls(tuple(range(width)), width)

    def accepts(self, value: pa.Scalar) -> bool:
        """Whether a new column may have `value` in existing rows: it is short, or LONG_CHARS_MAX is not exceeded."""
        size = pa.repeat(value, 1).nbytes
        if not value.is_valid or size <= SHORT_BYTES:
            return True
        if size > LONG_CHARS_MAX:
            return False
        long = sum(len(text) for _, text in self.missing if len(text) > SHORT_CHARS)
        return long + len(encoded(value)) <= LONG_CHARS_MAX

    def added(self, value: pa.Scalar, at: int | None = None) -> Numbering:
        """With a new column, which has `value` in existing rows. `at`: the position of the column that it replaces."""
        missing = (*self.missing, (self.next, encoded(value)))
        at = len(self.numbers) if at is None else at
        numbers = (*self.numbers[:at], self.next, *self.numbers[at + 1 :])
        return replace(self, numbers=numbers, next=self.next + 1, missing=_only(missing, numbers))

    def dropped(self, at: int) -> Numbering:
        """Without the column at a position."""
        numbers = (*self.numbers[:at], *self.numbers[at + 1 :])
        return replace(self, numbers=numbers, missing=_only(self.missing, numbers))

    def stored(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "numbers": self.numbers,
            "next": self.next,
            "missing": self.missing,
            "readable_from": self.readable_from,
        }

    @classmethod
    def restored(cls, given: dict[str, Any]) -> Numbering:
        """The inverse of `stored`."""
        missing = tuple((number, value) for number, value in given["missing"])
        return cls(tuple(given["numbers"]), given["next"], missing, given["readable_from"])


def _only(missing: Sequence[tuple[int, str]], numbers: Sequence[int]) -> tuple[tuple[int, str], ...]:
    return tuple((number, value) for number, value in missing if number in numbers)


def encoded(value: pa.Scalar) -> str:
    """A value as text, for the catalog: an Arrow stream in base 64."""
    table = pa.table([pa.repeat(value, 1)], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def decoded(text: str) -> pa.Scalar:
    """The inverse of `encoded`."""
    return pa.ipc.open_stream(base64.b64decode(text)).read_all().column(0)[0]


class Layout:
    """The storage of an altered table's columns. `schema`: that of its rows in memory."""

    def __init__(self, schema: pa.Schema, numbering: Numbering) -> None:
        self.schema = schema
        self.names = [f"c{number}" for number in numbering.numbers]
        self._missing = {f"c{number}": decoded(text) for number, text in numbering.missing}
        self._changes = schema.append(DIFF_FIELD)

    def read(self, table: pa.Table) -> pa.Table:
        """The rows or changes of a payload, with the columns of the layout. Altered if a column is missing."""
        stored = table.schema.names
        has_diff = stored[-1:] == [DIFF]
        schema = self._changes if has_diff else self.schema
        columns: list[Any] = []
        for name, type in zip(self.names, self.schema.types, strict=True):
            if name in stored:
                columns.append(table.column(name))
            elif name in self._missing:
                columns.append(pa.repeat(self._missing[name].cast(type), table.num_rows))
            else:
                raise Altered
        if has_diff:
            columns.append(table.column(DIFF))
        if not columns:
            return table.select([])
        return pa.table(columns, schema=schema)

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema of a payload with rows or changes of the layout, whose schema is given."""
        names = [*self.names, DIFF] if schema.names[-1:] == [DIFF] else self.names
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def check_unaltered(tables: Sequence[pa.Table], schema: pa.Schema) -> None:
    """Altered if a payload is not of a table that has these columns and was never altered."""
    names = schema.names
    for table in tables:
        if (stored := table.schema.names) != names and stored != [*names, DIFF]:
            raise Altered
