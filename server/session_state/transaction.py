"""A transaction: its mode, its effects so far, and what it may still do.

A transaction block reads, writes and changes the catalog, in any order. All reads are at one timestamp, and include the
block's own changes. The changes get one timestamp at COMMIT. A block that subscribes does nothing else. Statements that
read at an explicit AS OF or read nothing are exempt.

A statement that writes what it reads (UPDATE, DELETE, INSERT ... SELECT) locks it until the end of the transaction. If
the block has changes, its COMMIT fails if anything that it read has been written since.

Nothing is visible to others before COMMIT. Writes are kept as Arrow tables, DDL as a private catalog state. Both only
grow, so that a savepoint is the numbers of changes at the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import pyarrow as pa

from catalog import updates
from catalog.batches import Payload
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Layout
from catalog.objects.catalog_object import Item
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_conflicts import Keys
from server.coordinator.key_counts import KeyCounts
from server.coordinator.key_indexes import EnforcedKey, OwnKeys
from server.coordinator.payloads import few_changes
from server.coordinator.row_buffer import RowBuffer
from server.coordinator.sequences import State
from server.session_state.advisory_locks import Advisory
from server.session_state.deferral import Deferral
from server.session_state.listening import Pending
from server.settings.session_settings import Settings
from server.timeline.frontiers import FullHolder, Holder


class Mode(Enum):
    """The kind of statements that a transaction executes: that of its first statement that does more than read."""

    UNDECIDED = "undecided"
    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"
    DEFINE = "define"


_MIXED = frozenset((Mode.UNDECIDED, Mode.READ, Mode.WRITE, Mode.DEFINE))
_OF_ROWS = {Mode.READ, Mode.WRITE}
KEYS_MAX = 64  # a transaction that reads more keys of a table conflicts with every write of the table
SAVEPOINTS_MAX = 4_096
BYTES_MAX = 256 << 20  # of `writes`
MERGED_TABLES = 64  # so many changes are consolidated before they are read again

_ALONE = "SUBSCRIBE without AS OF must be the only statement of its transaction that reads or writes."

_numbers = itertools.count(1)  # of uncommitted catalogs
_UNDECIDED = Mode.UNDECIDED  # `has_begun` is read for each constant query, and reading a member of an enum is slow


Merged: TypeAlias = tuple[int, list[pa.Table]]
"""The number of the first `writes` of a table that are consolidated, and runs of these. Each run has less than half the
rows of the one before it, so that a change is consolidated at most as often as the logarithm of their number."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What ROLLBACK TO SAVEPOINT restores: settings, catalog, and the numbers of changes, locks and portals."""

    name: str
    settings: Settings
    local: Settings | None
    catalog: tuple[CatalogState, CatalogState] | None
    history_starts: dict[ObjectId, Timestamp]
    rows: dict[ObjectId, int]
    writes: dict[ObjectId, int]
    bytes: int
    payloads: int
    locked: int
    advisory: int
    pending: tuple[int, int]
    portals: int
    tables: dict[ObjectId, Table]
    altered: int
    deferral: Deferral


@dataclass(frozen=True, slots=True)
class _Unaltered:
    """The changes of a table as they were before ALTER TABLE. `payloads`: by position in `Transaction.payloads`."""

    id: ObjectId
    rows: RowBuffer | None
    writes: list[pa.Table] | None
    payloads: dict[int, tuple[ObjectId, Payload]]


@dataclass(frozen=True, slots=True)
class StatementSnapshot:
    """The transaction's own changes before a statement that has several writes (WITH). All parts of it read these.

    `rows`, `writes`, `payloads`: the numbers of changes, as in `Savepoint`. `defines`: whether the transaction had
    changed the catalog. `relations`: the relations that exist only in the statement, such as the results of RETURNING.
    `rows_of`: the rows of those relations whose part of the statement has been executed.
    """

    rows: dict[ObjectId, int]
    writes: dict[ObjectId, int]
    payloads: int
    defines: bool
    relations: frozenset[ObjectId]
    rows_of: dict[ObjectId, pa.Table] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Transaction:
    """The state of one transaction, from its first statement until COMMIT or ROLLBACK."""

    settings: Settings
    """The session's settings before the transaction, which ROLLBACK restores."""
    local: Settings | None = None
    """The settings before the first SET LOCAL, which COMMIT restores."""

    explicit: bool = False
    """Whether the transaction is a block. An implicit transaction ends with its query string, or at Sync."""
    becomes_explicit: bool = False
    """Whether a BEGIN follows in the same query string. Its block includes the statements before the BEGIN."""
    spans_statements: bool = False
    """Whether an implicit transaction may include other statements of the query string or pipeline."""
    failed: bool = False
    mode: Mode = Mode.UNDECIDED
    read_only: bool = False
    has_queried: bool = False
    """Whether a statement was executed for which PostgreSQL takes a snapshot."""

    read_time: Timestamp | None = None
    """The time of all reads. None: no statement has read yet."""
    holder: Holder | FullHolder | None = None
    """Keeps the history at `read_time`."""
    unchanged: dict[ObjectId, Timestamp] = field(default_factory=dict)
    """As in `Request`: the times at which relations were read that must not have changed at COMMIT."""
    keys: dict[ObjectId, Keys] = field(default_factory=dict)
    """As in `Request`: the keys of the relations in `unchanged` of which only some rows were read."""

    rows: dict[ObjectId, RowBuffer] = field(default_factory=dict)
    """The rows of small INSERTs, by table."""
    writes: dict[ObjectId, list[pa.Table]] = field(default_factory=dict)
    """Further changes by table, which are in memory."""
    bytes: int = 0
    """The size of `writes`."""
    payloads: list[tuple[ObjectId, Payload]] = field(default_factory=list)
    """Large changes, which are in files."""
    tables: dict[ObjectId, Table] = field(default_factory=dict)
    """The written tables, as they were defined at the last write."""
    altered: list[_Unaltered] = field(default_factory=list)
    """The changes of altered tables before DDL converted them, for ROLLBACK TO."""
    statement: StatementSnapshot | None = None
    """Set while a statement with several writes is executed: what its parts see."""

    key_changes: dict[ObjectId, dict[str, OwnKeys]] = field(default_factory=dict)
    """As in `Request`. A table without an entry was not written yet, or its changes of keys must be computed again."""
    new_keys: dict[str, KeyCounts] = field(default_factory=dict)
    """As in `Request`."""
    deferral: Deferral = field(default_factory=Deferral)
    """The effect of SET CONSTRAINTS."""
    arbiters: set[str] = field(default_factory=set)
    """The ids of the enforced keys that ON CONFLICT names. Their duplicates at COMMIT are serialization failures."""

    locked: tuple[str, ...] = ()
    """The locks that the transaction holds."""
    advisory: dict[Advisory, None] = field(default_factory=dict)
    """The advisory locks of the transaction, in the order in which they were taken."""
    savepoints: list[Savepoint] = field(default_factory=list)
    """The savepoints that are not released, in order."""
    pending: Pending = field(default_factory=Pending)
    """The LISTEN, UNLISTEN and NOTIFY that take effect at COMMIT."""

    catalog: tuple[CatalogState, CatalogState] | None = None
    """The catalog before and after the transaction's DDL. None without DDL."""
    history_starts: dict[ObjectId, Timestamp] = field(default_factory=dict)
    """As in `Request`: the times at which the history of new objects starts."""
    history_holder: Holder | None = None
    """Keeps the history from the times in `history_starts` on."""
    number: int | None = None
    """The result of txid_current(), if it was called."""
    sequences: dict[tuple[ObjectId, int], State] = field(default_factory=dict)
    """The states of the sequences that the transaction has created or restarted, by id and generation."""
    _merged: dict[ObjectId, Merged] = field(default_factory=dict)

    _numbered: tuple[CatalogState, int] | None = None
    """The last uncommitted catalog that `number_of_catalog` has numbered."""

    def number_of_catalog(self) -> int:
        """Returns a number that no other uncommitted catalog of the process has had. `catalog` must not be None."""
        assert self.catalog is not None
        if self._numbered is None or self._numbered[0] is not self.catalog[1]:
            self._numbered = (self.catalog[1], next(_numbers))
        return self._numbered[1]

    @property
    def ends_later(self) -> bool:
        """Whether the effects of a statement wait for a COMMIT or ROLLBACK, or for the end of an outer statement."""
        return self.explicit or self.becomes_explicit or self.statement is not None

    @property
    def is_shared(self) -> bool:
        """As `ends_later`, for statements that read or write rows. Definitions end an implicit transaction."""
        return self.spans_statements or self.ends_later

    @property
    def has_effects(self) -> bool:
        """Whether the transaction has anything to make durable or to restore."""
        return bool(self.rows or self.writes or self.payloads or self.pending or self.catalog or self.local is not None)

    @property
    def has_begun(self) -> bool:
        """Whether the transaction is a block, has failed, has a mode or a number, or has holds, locks or effects."""
        return (
            self.explicit
            or self.failed
            or self.mode is not _UNDECIDED
            or self.holder is not None
            or self.history_holder is not None
            or bool(self.locked or self.advisory or self.pending or self.rows or self.writes or self.payloads)
            or self.catalog is not None
            or self.local is not None
            or self.number is not None
        )

    def enter(self, mode: Mode, statement: str) -> None:
        """Sets the mode. PgError if the transaction has another one. `statement` is its name in the error message."""
        if mode in (Mode.WRITE, Mode.DEFINE) and self.read_only:
            raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, f"cannot execute {statement} in a read-only transaction")
        match self.mode, mode:
            case _ if self.can_enter(mode):
                if self.mode in (Mode.UNDECIDED, Mode.READ):
                    self.mode = mode
            case Mode.SUBSCRIBE, _:
                raise PgError(
                    SqlState.INVALID_TRANSACTION_STATE,
                    "SUBSCRIBE in transactions must be the only read statement",
                    detail=_ALONE,
                    hint=f"Execute {statement} in another transaction or session, or give SUBSCRIBE a time with AS OF.",
                )
            case Mode.READ, _:
                raise _not_alone(SqlState.READ_ONLY_SQL_TRANSACTION, "transaction in read-only mode")
            case Mode.WRITE, _:
                raise _not_alone(SqlState.INVALID_TRANSACTION_STATE, "transaction in write-only mode")
            case _:
                message = "this transaction can only execute a single statement"
                raise _not_alone(SqlState.INVALID_TRANSACTION_STATE, message)

    def defers(self, key: EnforcedKey) -> bool:
        """Whether the key is checked at COMMIT."""
        return key.deferrable and self.deferral.includes(key)

    @property
    def written(self) -> set[ObjectId]:
        """The changed tables."""
        return {*self.rows, *self.writes, *(id for id, _ in self.payloads)}

    def writes_to(self, table: Item) -> None:
        """Notes the definition for which changes of a table are computed.

        PgError 40001 if another transaction has altered the table since earlier changes of it were computed: nothing
        would check these for the new definition.
        """
        if isinstance(table, Table):
            self.check_unaltered(table)
            self.tables[table.id] = table

    def check_unaltered(self, table: Table) -> None:
        """PgError 40001 if the changes of a table were computed for another definition, which was not altered here.

        After DDL of the transaction itself the table can only be altered by the transaction. The changes that it had
        then were checked by `change_catalog`.
        """
        defines = self.catalog is not None if self.statement is None else self.statement.defines
        before = self.tables.get(table.id)
        if before is not None and not defines and not table.accepts_rows_of(before):
            raise PgError(
                SqlState.SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
                detail=f'Table "{table.name}" was altered by another transaction after this one had written it.',
                hint="The transaction might succeed if retried.",
            )

    def convert(self, id: ObjectId, converted: Callable[[pa.Table], pa.Table], layout: Layout | None) -> None:
        """Converts the changes of a table to its new columns, whose layout is given."""
        self.key_changes.pop(id, None)
        rows, writes = self.rows.pop(id, None), self.writes.pop(id, None)
        payloads = {at: own for at, own in enumerate(self.payloads) if own[0] == id}
        if rows is None and writes is None and not payloads:
            return
        self.altered.append(_Unaltered(id, rows, writes, payloads))
        self._merged.pop(id, None)
        tables = [*([] if rows is None else [rows.so_far()]), *(writes or ())]
        if tables:
            self.writes[id] = [converted(table) for table in tables]
        for at, (_, payload) in payloads.items():
            self.payloads[at] = (id, replace(payload, table=converted(payload.table), layout=layout))

    def add(self, id: ObjectId, tables: Sequence[pa.Table]) -> None:
        """Adds changes of a table. PgError 53200 if the transaction has too many."""
        self.bytes += sum(map(updates.size_of, tables))
        if self.bytes > BYTES_MAX:
            raise PgError(
                SqlState.OUT_OF_MEMORY,
                f"the transaction has more than {BYTES_MAX >> 20} MiB of small changes",
                hint="Commit more often, or change more rows by each statement: large changes are written to files.",
            )
        self.writes.setdefault(id, []).extend(tables)

    def tables_of(self, id: ObjectId) -> list[pa.Table]:
        """The rows and changes of a table that are not committed."""
        tables = [self.rows[id].so_far()] if id in self.rows else []
        count, runs = self._merged.get(id, (0, []))
        tables += runs
        tables += self.writes.get(id, [])[count:]
        return tables + [payload.table for table, payload in self.payloads if table == id]

    def visible_tables_of(self, id: ObjectId) -> list[pa.Table]:
        """As `tables_of`, what the current statement sees of them."""
        statement = self.statement
        if statement is None:
            return self.tables_of(id)
        if id in statement.rows_of:
            return [statement.rows_of[id]]
        count = statement.rows.get(id, 0)
        tables = [self.rows[id].so_far().slice(0, count)] if count else []
        tables += self.writes.get(id, [])[: statement.writes.get(id, 0)]
        return tables + [payload.table for table, payload in self.payloads[: statement.payloads] if table == id]

    def begin_statement(self, relations: frozenset[ObjectId]) -> None:
        """Begins a statement with several writes, before its relations are in `catalog`."""
        self.statement = StatementSnapshot(
            {id: buffer.count for id, buffer in self.rows.items()},
            {id: len(tables) for id, tables in self.writes.items()},
            len(self.payloads),
            self.catalog is not None,
            relations,
        )

    def must_merge(self, id: ObjectId) -> bool:
        """Whether `merged` has something to do for a table."""
        return len(self.writes.get(id, [])) - self._merged.get(id, (0, []))[0] >= MERGED_TABLES

    def merged(self, id: ObjectId) -> Merged:
        """Returns the `writes` of a table in few tables, for `keep_merged`. May run in a thread: it changes nothing."""
        writes = self.writes[id]
        count, runs = self._merged.get(id, (0, []))
        runs = [*runs, _consolidated(writes[count:])]
        while len(runs) > 1 and runs[-2].num_rows <= 2 * runs[-1].num_rows:
            runs[-2:] = [_consolidated(runs[-2:])]
        return len(writes), runs

    def keep_merged(self, id: ObjectId, merged: Merged) -> None:
        """Has `tables_of` return what `merged` has returned. No change and no savepoint may be between the two."""
        self._merged[id] = merged

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
        """Whether `enter` accepts the mode. Always False after SUBSCRIBE.

        A block mixes modes, and an implicit transaction with effects or locks mixes reads and writes. Otherwise it is
        committed before a statement with another mode.
        """
        if self.mode is Mode.SUBSCRIBE:
            return False
        if self.mode in (Mode.UNDECIDED, mode):
            return True
        if self.ends_later:
            return {self.mode, mode} <= _MIXED
        return (
            self.spans_statements
            and {self.mode, mode} == _OF_ROWS
            and bool(self.has_effects or self.locked or self.advisory)
        )

    def depend_on(self, id: ObjectId, time: Timestamp, keys: Keys | None = None) -> None:
        """Adds a relation that was read at `time`, the same for all calls. `keys`: only the rows with these keys."""
        known = self.keys.pop(id, None)
        if keys is not None and (known is not None or id not in self.unchanged):
            if known is not None and known.column == keys.column:
                keys = Keys(keys.column, known.values | keys.values)
            if (known is None or known.column == keys.column) and len(keys.values) <= KEYS_MAX:
                self.keys[id] = keys
        self.unchanged[id] = time

    def forget(self, id: ObjectId) -> list[Payload]:
        """Forgets the changes of a table, and returns their payloads."""
        self.rows.pop(id, None)
        self.writes.pop(id, None)
        self.key_changes.pop(id, None)
        forgotten = [payload for table, payload in self.payloads if table == id]
        self.payloads = [(table, payload) for table, payload in self.payloads if table != id]
        return forgotten

    def forget_dropped(self, state: CatalogState) -> list[Payload]:
        """Forgets the changes of tables and sequences that the transaction has dropped since. Returns the payloads."""
        for id in self.written - state.items.keys():
            self.rows.pop(id, None)
            self.writes.pop(id, None)
        self.sequences = {key: value for key, value in self.sequences.items() if key[0] in state.items}
        dropped = [payload for id, payload in self.payloads if id not in state.items]
        self.payloads = [(id, payload) for id, payload in self.payloads if id in state.items]
        return dropped

    # -- savepoints ---------------------------------------------------------------------------------------------

    def savepoint(self, name: str, settings: Settings, portals: int) -> None:
        """Begins a savepoint. `portals`: the number of those that were opened. PgError 54000 if there are too many."""
        if len(self.savepoints) >= SAVEPOINTS_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED, f"a transaction can have at most {SAVEPOINTS_MAX} savepoints"
            )
        last = self.savepoints[-1].settings if self.savepoints else None
        self.savepoints.append(
            Savepoint(
                name,
                last if last is not None and last.revision is settings.revision else settings.copy(),
                self.local,
                self.catalog,
                dict(self.history_starts),
                {id: buffer.count for id, buffer in self.rows.items()},
                {id: len(tables) for id, tables in self.writes.items()},
                self.bytes,
                len(self.payloads),
                len(self.locked),
                len(self.advisory),
                self.pending.counts(),
                portals,
                dict(self.tables),
                len(self.altered),
                self.deferral,
            )
        )

    def find_savepoint(self, name: str) -> int:
        """The number of the latest savepoint with this name. PgError 3B001 if there is none."""
        for number in reversed(range(len(self.savepoints))):
            if self.savepoints[number].name == name:
                return number
        raise PgError(SqlState.INVALID_SAVEPOINT_SPECIFICATION, f'savepoint "{name}" does not exist')

    def restore(self, savepoint: Savepoint) -> list[Payload]:
        """Forgets the later changes, and returns their payloads. The caller restores settings and releases locks."""
        self.local, self.catalog = savepoint.local, savepoint.catalog
        self.history_starts = dict(savepoint.history_starts)
        self.tables = dict(savepoint.tables)
        self.deferral = savepoint.deferral
        for before in reversed(self.altered[savepoint.altered :]):
            self._unconvert(before)
        del self.altered[savepoint.altered :]
        for id in [*self.rows]:
            if count := savepoint.rows.get(id):
                self.rows[id].truncate(count)
            else:
                del self.rows[id]
        for id in [*self.writes]:
            if count := savepoint.writes.get(id):
                del self.writes[id][count:]
            else:
                del self.writes[id]
        self._merged.clear()
        self.key_changes.clear()
        self.bytes = savepoint.bytes
        self.pending.truncate(savepoint.pending)
        payloads = [payload for _, payload in self.payloads[savepoint.payloads :]]
        del self.payloads[savepoint.payloads :]
        self.failed = False
        return payloads

    def _unconvert(self, before: _Unaltered) -> None:
        """Undoes `convert`."""
        id = before.id
        self.rows.pop(id, None)
        self.writes.pop(id, None)
        if before.rows is not None:
            self.rows[id] = before.rows
        if before.writes is not None:
            self.writes[id] = before.writes
        for at, own in before.payloads.items():
            self.payloads[at] = own

    def release(self) -> None:
        """Releases the history that the transaction holds."""
        for holder in (self.holder, self.history_holder):
            if holder is not None:
                holder.release()
        self.holder = self.history_holder = None


def _not_alone(sqlstate: SqlState, message: str) -> PgError:
    """The error of a SUBSCRIBE after another statement, with Materialize's message."""
    hint = "Execute SUBSCRIBE after COMMIT, or give it a time with AS OF."
    return PgError(sqlstate, message, detail=_ALONE, hint=hint)


def _consolidated(tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of changes, in one chunk: most tables have a single row, and a search takes time for each chunk."""
    return updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables])).combine_chunks()
