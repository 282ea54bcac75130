"""A transaction: its mode, its effects so far, and what it may still do.

The rules are Materialize's. A transaction either reads at one timestamp, or collects writes that get one timestamp at
COMMIT, or subscribes, or changes the catalog. It does not mix these. Statements that read at an explicit AS OF or read
nothing are exempt. A statement that reads and writes (UPDATE, DELETE, INSERT ... SELECT) may be the first of a writing
transaction. It locks what it reads and writes until the end.

Nothing is visible before COMMIT. Writes are kept as Arrow tables, DDL as a private catalog state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from catalog.log import Payload
from catalog.objects import ObjectId, Timestamp
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_conflicts import Keys
from server.coordinator.payloads import few_changes
from server.coordinator.row_buffer import RowBuffer
from server.settings import Settings
from server.timeline.frontiers import Holder


class Mode(Enum):
    """What a transaction does, as its statements have determined."""

    UNDECIDED = "undecided"
    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"
    DEFINE = "define"


_UNDECIDED = Mode.UNDECIDED  # `has_begun` is read for each constant query, and reading a member of an enum is slow


@dataclass(slots=True)
class Transaction:
    """`explicit`: between BEGIN and COMMIT. An implicit transaction ends with its query string, or at Sync.

    `becomes_explicit`: a BEGIN follows in the same query string, whose block includes what is done before it.

    `settings`: the session's settings before the transaction, which ROLLBACK restores.
    `local`: the settings before SET LOCAL, which COMMIT restores.
    `unchanged`, `keys`: as in `Request`. `locked`: the locks that it holds.
    `rows`, `writes`, `payloads`: the changes of tables: rows of small INSERTs, Arrow tables, and files.
    `holder`: keeps the history that the transaction reads, or with which its new objects begin. `begins` has the times.
    """

    settings: Settings
    explicit: bool = False
    becomes_explicit: bool = False
    failed: bool = False
    mode: Mode = Mode.UNDECIDED
    read_only: bool = False
    read_time: Timestamp | None = None
    holder: Holder | None = None
    rows: dict[ObjectId, RowBuffer] = field(default_factory=dict)
    writes: dict[ObjectId, list[pa.Table]] = field(default_factory=dict)
    payloads: list[tuple[ObjectId, Payload]] = field(default_factory=list)
    unchanged: dict[ObjectId, Timestamp] = field(default_factory=dict)
    keys: dict[ObjectId, Keys] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    catalog: tuple[CatalogState, CatalogState] | None = None
    begins: dict[ObjectId, Timestamp] = field(default_factory=dict)
    local: Settings | None = None

    @property
    def ends_later(self) -> bool:
        """Whether the effects of a statement wait for a COMMIT or ROLLBACK that the client sends."""
        return self.explicit or self.becomes_explicit

    @property
    def has_effects(self) -> bool:
        """Whether the transaction has anything to make durable or to restore."""
        return bool(self.rows or self.writes or self.payloads) or self.catalog is not None or self.local is not None

    @property
    def has_begun(self) -> bool:
        """Whether the transaction is a block, has failed, has a mode, or has holds, locks or effects."""
        return (
            self.explicit
            or self.failed
            or self.mode is not _UNDECIDED
            or self.holder is not None
            or bool(self.locked or self.rows or self.writes or self.payloads)
            or self.catalog is not None
            or self.local is not None
        )

    def enter(self, mode: Mode, statement: str) -> None:
        """Sets the mode. PgError if the transaction has another one. `statement` is its name in the error message."""
        if mode in (Mode.WRITE, Mode.DEFINE) and self.read_only:
            raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, f"cannot execute {statement} in a read-only transaction")
        match self.mode, mode:
            case (Mode.UNDECIDED, _) | (Mode.READ, Mode.READ) | (Mode.WRITE, Mode.WRITE) | (Mode.DEFINE, Mode.DEFINE):
                self.mode = mode
            case Mode.SUBSCRIBE, _:
                raise PgError(
                    SqlState.INVALID_TRANSACTION_STATE, "SUBSCRIBE in transactions must be the only read statement"
                )
            case Mode.READ, _:
                raise PgError(
                    SqlState.READ_ONLY_SQL_TRANSACTION,
                    "transaction in read-only mode",
                    detail="SELECT queries cannot be combined with other query types, including SUBSCRIBE.",
                )
            case Mode.WRITE, _:
                raise PgError(SqlState.INVALID_TRANSACTION_STATE, "transaction in write-only mode")
            case _:
                raise PgError(
                    SqlState.INVALID_TRANSACTION_STATE, "this transaction can only execute a single statement"
                )

    @property
    def written(self) -> set[ObjectId]:
        """The changed tables."""
        return {*self.rows, *self.writes, *(id for id, _ in self.payloads)}

    def changes(self) -> tuple[dict[ObjectId, RowBuffer], dict[ObjectId, pa.Table], dict[ObjectId, list[pa.Table]]]:
        """`rows` and `writes` by table.

        Returns few rows of tables that have no other changes; few changes of rows that were read, of tables that have
        no other changes; and all others.
        """
        rows: dict[ObjectId, RowBuffer] = {}
        changes: dict[ObjectId, pa.Table] = {}
        others = self.writes.copy()
        for id, tables in self.writes.items():
            if id in self.unchanged and id not in self.rows and (few := few_changes(tables)) is not None:
                changes[id] = few
                del others[id]
        for id, buffer in self.rows.items():
            if buffer.is_few and id not in others:
                rows[id] = buffer
            else:
                others[id] = [*others.get(id, ()), buffer.table()]
        return rows, changes, others

    def can_enter(self, mode: Mode) -> bool:
        """Whether the mode is undecided or this one. Always False after SUBSCRIBE."""
        return self.mode in (Mode.UNDECIDED, mode) and self.mode is not Mode.SUBSCRIBE

    def release(self) -> None:
        """Releases the history that the transaction holds."""
        if self.holder is not None:
            self.holder.release()
            self.holder = None
