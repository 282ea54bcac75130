"""The rows of a cursor, with a position that moves in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.statements.cursors import Direction
from server.sql.plan import Field


@dataclass(frozen=True, slots=True)
class CurrentRows:
    """The primary keys of a cursor's rows, in their order. `columns`: the numbers of the key's columns in the table."""

    table: ObjectId
    columns: tuple[int, ...]
    keys: pa.Table


class CursorRows:
    """The n rows of a cursor, all of which are available.

    The position is the number of the current row, from 1; 0 is before the first row, and n + 1 after the last one.
    `scrolls`: whether the position may decrease.
    """

    def __init__(self, fields: tuple[Field, ...], table: pa.Table, *, scrolls: bool) -> None:
        self.fields = fields
        self._table = table
        self._scrolls = scrolls
        self._position = 0

    @property
    def finished(self) -> bool:
        return bool(self._position > self._table.num_rows)

    async def take(self, limit: int | None) -> pa.Table:
        return self.fetch(Direction.FORWARD, limit)

    def close(self) -> None:
        self._table = self._table.schema.empty_table()
        self._position = 1

    def move(self, direction: Direction, count: int | None) -> int:
        """Moves as `fetch` does. Returns the number of rows that it would return."""
        if count == 0 and direction is not Direction.ABSOLUTE:
            return int(self._is_on_row)
        if direction is Direction.BACKWARD and count is None and self._position == 0:
            return 0  # before the first row this is no move, also of a cursor that does not scroll
        first, rows = self._advance(direction, count)
        return abs(rows) if first else 0

    def fetch(self, direction: Direction, count: int | None) -> pa.Table:
        """Moves, and returns the rows that it passes, or the one that it reaches. `count` None: all.

        PgError 55000 if the cursor does not scroll and this would move it backwards.
        """
        first, rows = self._advance(direction, count)
        if rows >= 0:
            return self._table.slice(first - 1, rows) if rows else self._table.slice(0, 0)
        passed = self._table.slice(first + rows, -rows)
        return passed.take(np.arange(-rows - 1, -1, -1))

    @property
    def current(self) -> int | None:
        """The number, from 0, of the current row; None if the position is not on a row."""
        return self._position - 1 if self._is_on_row else None

    @property
    def _is_on_row(self) -> bool:
        return bool(0 < self._position <= self._table.num_rows)

    def _advance(self, direction: Direction, count: int | None) -> tuple[int, int]:
        """Moves the position. Returns the first row, and the number of rows: negative for rows in descending order."""
        end, position = self._table.num_rows + 1, self._position
        if count == 0 and direction is not Direction.ABSOLUTE:
            if self._is_on_row:
                self._check(backwards=True)
                return position, 1
            self._check(backwards=direction is Direction.BACKWARD)
            return 0, 0
        match direction:
            case Direction.FORWARD:
                self._position = end if count is None else min(position + count, end)
                return position + 1, min(self._position, end - 1) - min(position, end - 1)
            case Direction.BACKWARD:
                self._check(backwards=True)
                self._position = 0 if count is None else max(position - count, 0)
                return position - 1, max(self._position, 1) - max(position, 1)
            case Direction.RELATIVE:
                assert count is not None
                target = position + count
            case Direction.ABSOLUTE:
                assert count is not None
                target = count if count >= 0 else end + count
        self._check(backwards=(target <= position and position > 0) or bool(count is not None and count < 0))
        self._position = min(max(target, 0), end)
        return (target, 1) if self._is_on_row else (0, 0)

    def _check(self, *, backwards: bool) -> None:
        if backwards and not self._scrolls:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
                hint="Declare it with SCROLL option to enable backward scan.",
            )
