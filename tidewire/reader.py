"""Turns the rows of `SUBSCRIBE ... WITH (PROGRESS)` into batches of complete timestamps. Does no IO.

    reader = Reader(query)
    send(reader.statement())             # for every new connection
    reader.describe(columns)             # once the column names are known
    reader.receive(row)                  # for every row, in stream order
    while (batch := reader.next_batch()) is not None: ...

A stream starts with a progress row at its AS OF. The rows of the snapshot follow, with the AS OF as their timestamp,
then the changes. Times are non-decreasing. A progress row at p states that all times before p are complete. A data row
at t implies the same for t. Therefore the reader returns a timestamp (the snapshot too) as soon as it has received a
progress row or a data row of a later time, and it buffers at most one incomplete timestamp. When the connection
breaks, the buffered rows are discarded.

After all batches before p have been returned, `SUBSCRIBE ... WITH (PROGRESS, SNAPSHOT false) AS OF p - 1` returns the
rest. p is any time in (AS OF, last progress]; the first progress row of a stream does not qualify because it precedes
the snapshot. Therefore the token of the batch at time t is t + 1.

Invariant: the token covers only batches that have been returned, never rows that have only been received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, cast

from tidewire.batches import AnyBatch, Change, KeyChange, Progress, Row, Snapshot, Update
from tidewire.columns import ColumnType
from tidewire.errors import BrokenPromise, KeyViolation, WrongToken
from tidewire.query import Query, Token
from tidewire.rows import R, check_row_type, row_maker

_END_OF_TIME = 1 << 64  # greater than every timestamp


class Reader(Generic[R]):
    def __init__(
        self,
        query: Query,
        token: Token | None = None,
        rows: Mapping[Row, Row] | None = None,
        acknowledge: Callable[[Token], None] = lambda token: None,
        row_type: type[R] | None = None,
    ) -> None:
        """`rows`: the value of `batch.rows` at the token. A query with a key needs both or neither.

        `row_type`: the type of the rows in `changes`; None leaves them as tuples.

        WrongToken if the token belongs to another query. ValueError if only one of `token` and `rows` is given, or if
        an envelope is combined with a row type. TypeError if rows cannot be converted to the row type.
        """
        if row_type is not None:
            check_row_type(row_type)
            if query.envelope is not None:
                raise ValueError("row_type applies to changes, which a subscription with an envelope does not have")
        if token is not None and token.fingerprint != query.fingerprint:
            raise WrongToken("the token was made for another query, another key or another envelope")
        if query.key and (token is None) != (rows is None):
            raise ValueError("resuming with a key requires both the token and the rows at the token")
        self._query = query
        self._acknowledge = acknowledge
        self._resume = None if token is None else token.progress  # all before it has been handed over
        self._as_of_wanted = query.as_of
        self._reset = False
        self._table: dict[Row, Row] | None = dict(rows or ()) if query.key else None
        self._view = None if self._table is None else MappingProxyType(self._table)
        self._columns: tuple[str, ...] = ()
        self._types: tuple[ColumnType, ...] = ()
        self._key_at: tuple[int, ...] = ()
        self._rest_at: tuple[int, ...] = ()
        self._row_type = row_type
        self._make_row: Callable[[Row], R] | None = None
        self._forget()

    def _forget(self) -> None:
        self._as_of: int | None = None  # of the current stream; None until its first row
        self._progress = 0  # the last progress of the current stream
        self._frontier = 0  # all times before it are complete
        self._received: deque[tuple[int, list[Sequence[Any]]]] = deque()  # received rows by time, ascending

    @property
    def token(self) -> Token | None:
        """The token of the last batch that was returned; None before the snapshot."""
        return None if self._resume is None else Token(self._query.fingerprint, self._resume)

    @property
    def as_of(self) -> int | None:
        """The time at which the current stream began; None before its first row."""
        return self._as_of

    @property
    def frontier(self) -> int:
        """All times before this one have been received from the current stream; 0 before its first row."""
        return self._frontier

    @property
    def progress(self) -> int:
        """The last progress of the current stream. Unlike `frontier`, it does not depend on rows."""
        return self._progress

    @property
    def next_time(self) -> int | None:
        """The time of the first received row that has not been returned. Its timestamp may be incomplete."""
        return self._received[0][0] if self._received else None

    def advance(self, progress: int) -> None:
        """Moves the token to `progress`, at most the frontier. All received rows before it have been returned."""
        assert self._resume is not None
        self._resume = max(self._resume, progress)

    def statement(self) -> str:
        """Returns the statement for a new connection. Discards the buffered rows of the previous one."""
        self._forget()
        if self._resume is None:
            return self._query.statement(self._as_of_wanted, snapshot=True)
        return self._query.statement(self._resume - 1, snapshot=False)

    def reset(self) -> None:
        """Called when the history has been compacted: the next statement requests a snapshot of the present.

        The token and the requested AS OF are dropped.
        """
        self._forget()
        self._reset = self._reset or self._resume is not None
        self._resume = self._as_of_wanted = None

    def describe(self, columns: Sequence[str], types: Sequence[ColumnType] = ()) -> None:
        """Sets the names of the stream's columns, and their types for `batch.arrow()`, which otherwise infers them.

        ValueError if a key column does not occur exactly once.

        RowTypeMismatch if the columns do not match the row type.
        """
        names, key = tuple(columns[3:]), self._query.key
        if self._query.envelope == "debezium":
            after = len(names) - (len(names) - len(key)) // 2
            names = (*key, *(name.removeprefix("after_") for name in names[after:]))
        for column in key:
            if names.count(column) != 1:
                raise ValueError(f'the key column "{column}" is not one of {", ".join(names)}')
        if self._row_type is not None:
            self._make_row = row_maker(self._row_type, names)
        self._columns = names
        self._types = tuple(types[3:])
        self._key_at = tuple(names.index(column) for column in key)
        self._rest_at = tuple(at for at in range(len(names)) if at not in self._key_at)

    def receive(self, row: Sequence[Any]) -> bool:
        """Adds the next row of the stream. Returns whether a batch may now be complete.

        BrokenPromise if the row contradicts earlier rows.
        """
        time, progressed = int(row[0]), row[1]
        if self._as_of is None:
            # A query that reads no relation begins at the greatest timestamp, whatever its AS OF.
            expected = (time, _END_OF_TIME - 1) if self._resume is None else (self._resume - 1, _END_OF_TIME - 1)
            if not progressed or time not in expected:
                raise BrokenPromise(f"the stream began with {row!r} instead of progress at its AS OF")
            self._as_of = self._progress = self._frontier = time
            return True
        last = self._received[-1][0] if self._received else self._as_of + (self._resume is not None)
        if time < self._frontier or (not progressed and time < last):
            raise BrokenPromise(f"received a row at {time} after progress at {self._progress} and rows at {last}")
        moved = bool(progressed) or time > self._frontier
        self._frontier = time
        if progressed:
            self._progress = time
        elif self._received and time == last:
            self._received[-1][1].append(row)
        else:
            self._received.append((time, [row]))
        return moved

    def finish(self) -> None:
        """Marks all times as complete. Called when the server ended the stream, not when the connection broke."""
        if self._as_of is not None:
            end = _END_OF_TIME if self._query.up_to is None else max(self._as_of, self._query.up_to)
            self._progress = self._frontier = end

    def next_batch(self) -> AnyBatch[R] | None:
        """Returns the next batch, or None if more rows are needed. KeyViolation leaves map and token unchanged."""
        if self._as_of is None:
            return None
        if self._resume is None:
            if self._frontier <= self._as_of:
                return None
            if self._received and self._received[0][0] == self._as_of:
                snapshot = self._snapshot(*self._received[0])
                self._received.popleft()
                return snapshot
            return self._snapshot(self._as_of, [])
        if self._received and self._received[0][0] < self._frontier:
            update = self._update(*self._received[0])
            self._received.popleft()
            return update
        if self._resume < self._progress < _END_OF_TIME:
            self._resume = self._progress
            return Progress(token=self._token(self._progress), _acknowledge=self._acknowledge)
        return None

    def _snapshot(self, time: int, rows: list[Sequence[Any]]) -> Snapshot[R]:
        changes, key_changes = self._decode(rows)
        typed = self._typed(changes)
        if self._table is not None:
            changed = self._changed_rows({}, changes, key_changes, time)
            self._table.clear()
            self._store(changed)
        reset, self._reset, self._resume = self._reset, False, time + 1
        return Snapshot(
            token=self._token(time + 1),
            _acknowledge=self._acknowledge,
            time=time,
            columns=self._columns,
            changes=typed,
            key_changes=key_changes,
            _raw=changes if self._query.envelope is None else None,
            _types=self._types,
            _table=self._view,
            reset=reset,
        )

    def _update(self, time: int, rows: list[Sequence[Any]]) -> Update[R]:
        changes, key_changes = self._decode(rows)
        typed = self._typed(changes)
        if self._table is not None:
            self._store(self._changed_rows(self._table, changes, key_changes, time))
        self._resume = time + 1
        return Update(
            token=self._token(time + 1),
            _acknowledge=self._acknowledge,
            time=time,
            columns=self._columns,
            changes=typed,
            key_changes=key_changes,
            _raw=changes if self._query.envelope is None else None,
            _types=self._types,
            _table=self._view,
        )

    def _token(self, progress: int) -> Token:
        return Token(self._query.fingerprint, progress)

    def _decode(self, rows: list[Sequence[Any]]) -> tuple[list[Change], list[KeyChange]]:
        keys = len(self._query.key)
        match self._query.envelope:
            case None:
                return [Change(tuple(row[3:]), int(row[2])) for row in rows], []
            case "upsert":
                return [], [_upsert(row[2], tuple(row[3 : 3 + keys]), tuple(row[3 + keys :])) for row in rows]
            case "debezium":
                after = len(self._columns) + 3
                return [], [
                    _debezium(row[2], tuple(row[3 : 3 + keys]), tuple(row[3 + keys : after]), tuple(row[after:]))
                    for row in rows
                ]

    def _typed(self, changes: list[Change[Row]]) -> list[Change[R]]:
        make_row = self._make_row
        if make_row is None:
            return cast("list[Change[R]]", changes)
        return [Change(make_row(row), diff) for row, diff in changes]

    def _changed_rows(
        self, table: Mapping[Row, Row], changes: list[Change], key_changes: list[KeyChange], time: int
    ) -> dict[Row, Row | None]:
        """Returns the new values of the changed keys; None for keys that no longer have a row. Does not modify `table`.

        A key has at most one row: the sum of its diffs determines whether there is one, and its only positive change
        determines the values. Values are never compared, so values that do not equal themselves (NaN) are safe.
        """
        if self._query.envelope is not None:
            return {change.key: change.after for change in key_changes}
        multiplicities: dict[Row, int] = {}
        changed: dict[Row, Row | None] = {}
        added: set[Row] = set()
        for row, diff in changes:
            key = tuple(row[at] for at in self._key_at)
            multiplicities[key] = multiplicities.get(key, int(key in table)) + diff
            changed.setdefault(key, table.get(key))
            if diff > 0:
                if key in added:
                    raise KeyViolation(key, time)
                added.add(key)
                changed[key] = tuple(row[at] for at in self._rest_at)
        for key, multiplicity in multiplicities.items():
            if multiplicity > 1:
                raise KeyViolation(key, time)
            if multiplicity < 0:
                raise BrokenPromise(f"received a retraction at {time} of the key {key!r}, which has no row")
            if multiplicity == 0:
                changed[key] = None
        return changed

    def _store(self, changed: Mapping[Row, Row | None]) -> None:
        assert self._table is not None
        for key, values in changed.items():
            if values is None:
                self._table.pop(key, None)
            else:
                self._table[key] = values


def _upsert(state: str, key: Row, values: Row) -> KeyChange:
    return KeyChange(state, key, None, values if state == "upsert" else None)


def _debezium(state: str, key: Row, before: Row, after: Row) -> KeyChange:
    return KeyChange(
        state, key, before if state in ("upsert", "delete") else None, after if state in ("insert", "upsert") else None
    )
