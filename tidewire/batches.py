"""What a subscription hands over: the snapshot, then the updates of each timestamp, and progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidewire.query import Token

Row = tuple[Any, ...]
"""Values as the driver gives them."""


class Change(NamedTuple):
    """`diff` more copies of the row, fewer if negative. A timestamp has one change a row; an update is two changes."""

    row: Row
    diff: int


class KeyChange(NamedTuple):
    """What became of a key, from an envelope.

    `state` is "upsert" or "delete", with DEBEZIUM also "insert"; "key_violation" says that more than one row had the
    key, and which they are is not known. `before`, with DEBEZIUM alone, and `after` are the other columns' values,
    None where there is no row.
    """

    state: str
    key: Row
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`token` resumes behind this batch: store it together with what was made of the batch."""

    token: Token
    _acknowledge: Callable[[Token], None]

    @property
    def progress(self) -> int:
        """Everything before this time (ms since 1970) is final and has been handed over."""
        return self.token.progress

    def ack(self) -> None:
        """The history up to this batch is no longer needed: lets `hold` advance. May be called from any thread."""
        self._acknowledge(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes(Batch):
    """All that belongs to one timestamp: `changes`, or with an envelope `key_changes`; never a part of it.

    `columns` names the values of a row; with an envelope those of the key, then the others.
    """

    time: int
    columns: tuple[str, ...]
    changes: list[Change]
    key_changes: list[KeyChange]
    _table: Mapping[Row, Row] | None

    @property
    def rows(self) -> Mapping[Row, Row]:
        """The relation after this batch, from key to the other values. It is a live view: the next batch changes it.

        With an envelope a key in violation is not in it.
        """
        if self._table is None:
            raise TypeError("a subscription keeps rows when it is given a key")
        return self._table


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(_Changes):
    """All there was at `time`; it may be empty. `reset`: it replaces what was handed over before."""

    reset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(_Changes):
    """All changes of `time`, which is greater than that of the batch before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Batch):
    """Nothing changed; the token moves on."""


AnyBatch = Snapshot | Update | Progress
