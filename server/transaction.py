"""A transaction: what it may still do, and what it has done so far.

The rules are Materialize's: a transaction reads at one timestamp, or collects writes that get
one timestamp when it commits, or subscribes, or changes the catalog; it does not mix these. What reads at an explicit
AS OF, and what reads nothing, is exempt. A statement that reads and writes (UPDATE, DELETE, INSERT ... SELECT) may
stand first: it locks what it read until the end.

Nothing is visible before COMMIT: writes wait here as Arrow tables, DDL as a catalog state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from catalog.log import Payload
from catalog.objects import CatalogState, ObjectId, Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.frontiers import Holder
from server.settings import Settings


class Mode(Enum):
    """What a transaction has turned out to be."""

    UNDECIDED = "undecided"
    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"
    DEFINE = "define"


@dataclass(slots=True)
class Transaction:
    """`explicit`: between BEGIN and COMMIT; otherwise it ends with its query string, or at Sync.

    `becomes_explicit`: a BEGIN follows in the same query string, and what is done before it belongs to its block.

    `settings` are the session's as they were before, to be put back by ROLLBACK; `local` those before SET LOCAL.
    `holder` keeps what it reads, or what the history of new holds begins with; `begins` tells where that is.
    """

    settings: Settings
    explicit: bool = False
    becomes_explicit: bool = False
    failed: bool = False
    mode: Mode = Mode.UNDECIDED
    read_only: bool = False
    read_time: Timestamp | None = None
    holder: Holder | None = None
    writes: dict[ObjectId, list[pa.Table]] = field(default_factory=dict)
    payloads: list[tuple[ObjectId, Payload]] = field(default_factory=list)
    unchanged: dict[ObjectId, Timestamp] = field(default_factory=dict)
    locked: tuple[ObjectId, ...] = ()
    catalog: tuple[CatalogState, CatalogState] | None = None
    begins: dict[ObjectId, Timestamp] = field(default_factory=dict)
    local: Settings | None = None

    @property
    def ends_later(self) -> bool:
        """Whether a statement leaves its effects to a COMMIT or ROLLBACK that the client sends."""
        return self.explicit or self.becomes_explicit

    @property
    def has_effects(self) -> bool:
        """Whether its end has something to make durable or to put back."""
        return bool(self.writes or self.payloads) or self.catalog is not None or self.local is not None

    @property
    def has_begun(self) -> bool:
        """Whether anything has happened in it that its end must undo."""
        return (
            self.explicit
            or self.failed
            or self.mode is not Mode.UNDECIDED
            or self.holder is not None
            or bool(self.locked)
            or self.has_effects
        )

    def enter(self, mode: Mode, statement: str) -> None:
        """The transaction is to do this. PgError if it is something else already; `statement` names it to a person."""
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

    def can_enter(self, mode: Mode) -> bool:
        """Whether `enter` would do."""
        return self.mode in (Mode.UNDECIDED, mode) and self.mode is not Mode.SUBSCRIBE

    def release(self) -> None:
        """Lets go of the history that the transaction held."""
        if self.holder is not None:
            self.holder.release()
            self.holder = None
