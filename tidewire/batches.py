"""The batches that a subscription returns: the snapshot, the updates of each timestamp, and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tidewire import columns as arrow_columns
from tidewire.query import Token
from tidewire.rows import R

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Row = tuple[Any, ...]
"""Values as the driver returns them."""


class Change(NamedTuple, Generic[R]):
    """Adds `diff` to the multiplicity of `row`. A batch has one change per row; an SQL UPDATE yields two changes.

    `row` is a tuple of the driver's values, or an instance of the subscription's `row_type`.
    """

    row: R
    diff: int


class KeyChange(NamedTuple):
    """The change of one key, in a subscription with an envelope.

    `state` is "upsert" or "delete", and with DEBEZIUM also "insert". "key_violation" means that more than one row has
    the key; those rows are not included. `before` (DEBEZIUM only) and `after` are the values of the columns outside
    the key; None if there is no such row.
    """

    state: str
    key: Row
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`token` resumes after this batch. Store it atomically with the results of processing the batch."""

    token: Token
    _acknowledge: Callable[[Token], None]

    @property
    def progress(self) -> int:
        """All timestamps before this one (ms since 1970) are complete and have been returned."""
        return self.token.progress

    def ack(self) -> None:
        """Acknowledges this batch: `hold` may advance past it. May be called from any thread."""
        self._acknowledge(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes(Batch, Generic[R]):
    """All changes of one timestamp, in `changes` or, with an envelope, in `key_changes`. A timestamp is never split.

    `columns` contains the names of a row's values; with an envelope the key columns come first.
    """

    time: int
    columns: tuple[str, ...]
    changes: list[Change[R]]
    key_changes: list[KeyChange]
    _raw: list[Change[Row]] | None  # the changes with tuples for rows; None with an envelope
    _types: tuple[arrow_columns.ColumnType, ...]
    _table: Mapping[Row, Row] | None

    @property
    def rows(self) -> Mapping[Row, Row]:
        """The relation after this batch, as a map from key to the other values. The next batch changes the same map.

        With an envelope it does not contain keys in violation. TypeError if the subscription has no key.
        """
        if self._table is None:
            raise TypeError("rows are kept only by a subscription with a key")
        return self._table

    def arrow(self) -> pyarrow.Table:
        """Returns `changes` as an Arrow table: `mz_timestamp`, `mz_diff` and the columns of the query.

        The types are those of the server's columns. ImportError without pyarrow. TypeError with an envelope.
        """
        if self._raw is None:
            raise TypeError("Arrow tables are of changes, which a subscription with an envelope does not have")
        rows, diffs = [row for row, _ in self._raw], [diff for _, diff in self._raw]
        return arrow_columns.changes_table(self.columns, self._types, self.time, rows, diffs)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns `arrow()` as a DataFrame of pandas. ImportError without pandas and pyarrow."""
        return arrow_columns.to_pandas(self.arrow())

    def to_polars(self) -> polars.DataFrame:
        """Returns `arrow()` as a DataFrame of polars. ImportError without polars and pyarrow."""
        return arrow_columns.to_polars(self.arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface, by which polars, DuckDB and others read the batch as `arrow()`."""
        return self.arrow().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(_Changes[R]):
    """All rows at `time`; there may be none. `reset`: the snapshot replaces everything that was returned before."""

    reset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(_Changes[R]):
    """All changes at `time`, which is greater than the time of the previous batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Batch):
    """Only the token advances; there are no changes."""


AnyBatch = Snapshot[R] | Update[R] | Progress


def to_arrow(batches: Iterable[AnyBatch[Any]]) -> pyarrow.Table:
    """Returns the changes of all these batches of one subscription as one table, in their order.

    Batches of progress are ignored. ValueError if there is no other batch.
    """
    tables = [batch.arrow() for batch in batches if not isinstance(batch, Progress)]
    if not tables:
        raise ValueError("there is no snapshot and no update, so the columns are unknown")
    return arrow_columns.concatenate(tables)
