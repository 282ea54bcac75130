"""The context of a statement: its session and the server's components."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TypeVar

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from catalog.objects.namespaces import TEMPORARY, Schema, temporary_schema_name
from catalog.objects.tables import Table
from catalog.roles import MATERIALIZE
from catalog.state import CatalogState
from catalog.updates import size_of
from protocol.pgwire.errors import Notice, PgError, Severity
from server.authorization import privileges
from server.authorization.privilege_functions import evaluate_privilege_function
from server.coordinator.committer import Commit
from server.coordinator.coordinator import Coordinator
from server.coordinator.key_conflicts import Keys
from server.coordinator.key_indexes import Duplicate
from server.coordinator.key_values import cheap_key_tables
from server.coordinator.locks import EXCLUSIVE, KEYS, ROWS
from server.coordinator.payloads import prepare_payloads
from server.evaluation.evaluator import Evaluator
from server.pg_catalog.engine import CatalogEngine, Undescribed
from server.session_state import commits
from server.session_state.advisory_locks import AdvisoryLocks
from server.session_state.current_query import CurrentQuery
from server.session_state.facts import fact
from server.session_state.listening import Listening
from server.session_state.read_times import ReadTimes
from server.session_state.signals import signal
from server.session_state.transaction import Mode, Savepoint, Transaction
from server.session_state.volatile_functions import VolatileFunctions
from server.settings.parsers import MESSAGE_LEVELS
from server.settings.session_settings import Settings
from server.settings.variables import SERVER_VERSION
from server.spark import Engine
from server.sql.constant import Bindings
from server.sql.plan import PlanContext, QueryPlan

Planned = TypeVar("Planned")

IN_MEMORY_BYTES_MAX = 8 << 20  # of the changes of a statement that are kept in memory until the commit
VERSION = f"PostgreSQL {SERVER_VERSION} (Tidewire)"
MZ_VERSION = f"v{version('tidewire')} (Tidewire)"


def nobody_to_notify(error: PgError) -> None:
    """The `interrupt` of a context without a session: ignores the error."""


@dataclass(slots=True, eq=False)
class Context:
    """A session's state, without the protocol. One statement runs at a time. The context owns the session's locks.

    `client_user`: the user name that the client has sent.
    """

    coordinator: Coordinator
    engine: Engine
    evaluator: Evaluator
    catalog_engine: CatalogEngine
    settings: Settings
    client_user: str
    process_id: int
    transaction: Transaction
    notices: list[Notice] = field(default_factory=list)
    interrupt: Callable[[PgError], None] = nobody_to_notify
    """Ends the current statement with an error."""
    send_notice: Callable[[Notice], None] | None = None
    """Sends a notice while the statement runs. None: the client receives notices only with answers."""
    signals: Mapping[str, Callable[[int], bool]] = field(default_factory=dict)
    """The functions pg_cancel_backend, pg_terminate_backend and pg_reload_conf, which take a process id."""
    authenticated: ObjectId = MATERIALIZE.id
    """The role with which the session connected."""
    ends_at_sync: bool = False
    """Whether the statement came in an Execute message: an implicit transaction ends at Sync then."""
    transaction_us: int = 0
    """now() of the transaction, in microseconds since 1970; 0 before its first statement."""
    advisory_locks: AdvisoryLocks = field(init=False)
    has_temporary: bool = False
    """Whether the session has created temporary objects."""
    volatile: VolatileFunctions = field(init=False)
    listening: Listening = field(init=False)
    read_times: ReadTimes = field(init=False)
    own_rows: Mapping[str, Callable[[], list[dict[str, object]]]] = field(default_factory=dict)
    """The rows of pg_prepared_statements and pg_cursors, by the name of the relation."""
    query: CurrentQuery = field(default_factory=CurrentQuery)

    def __post_init__(self) -> None:
        self.advisory_locks = AdvisoryLocks(self.coordinator.locks, self)
        self.volatile = VolatileFunctions(self)
        self.listening = Listening(self.coordinator.notifications)
        self.read_times = ReadTimes(self)

    @property
    def state(self) -> CatalogState:
        """The catalog as the session sees it, including its own uncommitted DDL."""
        catalog = self.transaction.catalog
        return catalog[1] if catalog is not None else self.coordinator.state

    @property
    def login(self) -> ObjectId:
        """The session's role: that of SET SESSION AUTHORIZATION, or its login role. 42704 if dropped."""
        authorized = self.settings.authorized
        return self.authenticated if authorized is None else privileges.find_role(self.state, authorized[0]).id

    @property
    def user(self) -> str:
        """The name of the session's role."""
        authorized = self.settings.authorized
        return self.client_user if authorized is None else authorized[0]

    @property
    def role(self) -> ObjectId:
        """The current role: that of SET ROLE, or the session's role. 42704 if it was dropped."""
        name = self.settings["role"]
        return self.login if name == "none" else privileges.find_role(self.state, name).id

    @property
    def current_user(self) -> str:
        name = self.settings["role"]
        return self.user if name == "none" else name

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas of the setting that the role may use. Unqualified names are resolved in them."""
        settings = self.settings
        path = privileges.usable_path(self.state, self.role, settings["database"], settings.search_path)
        own = self.temporary_schema
        if own is None:
            return path
        return (*(() if TEMPORARY in path else (own.name,)), *(own.name if n == TEMPORARY else n for n in path))

    @property
    def temporary_schema(self) -> Schema | None:
        """The schema of the session's temporary objects in the current database, if there is one."""
        database = self.state.database_named(self.settings["database"]) if self.has_temporary else None
        return (
            None if database is None else self.state.schema_named(database.id, temporary_schema_name(self.process_id))
        )

    @property
    def lock_timeout_s(self) -> float | None:
        """How long a statement waits for a lock; None: without a limit."""
        return self.settings.timeout_s("lock_timeout")

    def plan_context(self) -> PlanContext:
        return PlanContext(
            state=self.state,
            database=self.settings["database"],
            search_path=self.search_path,
            user=self.current_user,
            timezone=self.settings["TimeZone"],
            input_style=self.settings.input_style,
        )

    def short_bindings(self, plan: QueryPlan, parameters: tuple[object, ...], mz_now: Timestamp | None) -> Bindings:
        """As `bindings`, with only the values that the plan needs."""
        if plan.uses_session:
            return self.bindings(parameters, self.read_times.current if mz_now is None else mz_now)
        if plan.volatile is not None:
            return Bindings(parameters, volatile=self.volatile)
        return Bindings(parameters)

    def bindings(self, parameters: tuple[object, ...] = (), mz_now: int | None = None) -> Bindings:
        """Returns the values that a plan needs when it runs."""
        clock_us = time.time_ns() // 1_000
        return Bindings(
            parameters=parameters,
            now_us=self.transaction_us or clock_us,
            statement_us=self.query.begun_us or clock_us,
            clock_us=clock_us,
            mz_now=mz_now,
            database=self.settings["database"],
            schema=self.current_schema(),
            user=self.current_user,
            session_user=self.user,
            version=VERSION,
            mz_version=MZ_VERSION,
            backend_pid=self.process_id,
            started_us=self.coordinator.activity.started_us,
            settings=self.settings,
            signal=functools.partial(signal, self),
            fact=functools.partial(fact, self),
            privilege_function=self._privilege_function,
            sequence=self.volatile.sequence_value,
            volatile=self.volatile,
        )

    async def described(self, plan: Callable[[], Awaitable[Planned]]) -> Planned:
        """Returns the result of `plan`. When `plan` raises Undescribed, describes that query and calls `plan` again."""
        while True:
            try:
                return await plan()
            except Undescribed as query:
                await self.catalog_engine.describe(query.sql)

    def _privilege_function(self, function: str, arguments: Sequence[str | None]) -> bool | None:
        """Implements has_table_privilege and similar functions."""
        return evaluate_privilege_function(
            self.state, self.role, self.settings["database"], self.search_path, function, arguments
        )

    def current_schema(self) -> str | None:
        """The first schema of search_path that exists and that the role may use."""
        database = self.state.database_named(self.settings["database"])
        names = [name for name in self.search_path if not name.startswith(f"{TEMPORARY}_")]
        id = database.id if database is not None else None
        return next((name for name in names if self.state.schema_named(id, name) is not None), None)

    def notice(self, notice: Notice) -> None:
        """Has a notice sent with the statement's response, unless client_min_messages excludes its severity."""
        if self.is_sent(notice.severity):
            self.notices.append(notice)

    def is_sent(self, severity: Severity) -> bool:
        """Whether notices of this severity are sent, according to client_min_messages."""
        level = severity.lower()
        return level not in MESSAGE_LEVELS or MESSAGE_LEVELS.index(level) >= MESSAGE_LEVELS.index(
            self.settings["client_min_messages"]
        )

    # -- transaction --------------------------------------------------------------------------------------------

    def begin_statement(self, *, queries: bool = True) -> None:
        """Sets now() for the first statement of a transaction: the time at which its message arrived.

        `queries`: whether PostgreSQL takes a snapshot for the statement.
        """
        if queries:
            self.transaction.has_queried = True
        if not self.transaction_us:
            self.transaction_us = self.query.begun_us or time.time_ns() // 1_000

    def end_query(self) -> None:
        """The client may send the next query. Its now() is another one, unless a block is open."""
        self.query.end()
        if not self.transaction.explicit:
            self.transaction_us = 0

    async def enter(self, mode: Mode, statement: str) -> None:
        """Declares what the transaction does. If an implicit transaction has another mode, commits it first.

        PgError if a block has another mode, or has effects from before its BEGIN.
        """
        transaction = self.transaction
        is_block = transaction.explicit or (transaction.becomes_explicit and transaction.has_effects)
        is_subscription = transaction.mode is Mode.SUBSCRIBE  # nothing may follow it, even if implicit
        if not is_block and not is_subscription and not transaction.can_enter(mode):
            await self.commit()
            self.transaction.becomes_explicit = transaction.becomes_explicit
            self.transaction.spans_statements = transaction.spans_statements
        self.transaction.enter(mode, statement)

    async def end_implicit(self) -> None:
        """Commits the earlier statements of the query string, so that the next one is not part of their transaction."""
        if self.transaction.mode is not Mode.UNDECIDED:
            await self.commit()

    async def add_changes(self, table: Table, changes: Sequence[pa.Table]) -> None:
        """Adds changes of a table to the transaction, as computed for this definition. Large ones are written to files.

        PgError 53200 if the small ones of the transaction are too large together.
        """
        self.transaction.writes_to(table)
        if sum(map(size_of, changes)) > IN_MEMORY_BYTES_MAX:
            layout = functools.partial(commits.written_layout, self)
            self.transaction.payloads += await prepare_payloads(self.coordinator.log, {table.id: changes}, layout)
        else:
            self.transaction.add(table.id, changes)

    async def commit(self) -> None:
        """Makes the transaction's effects durable and begins a new implicit one. Rolls back if that fails."""
        transaction = self.transaction
        try:
            if self.has_temporary:
                commits.end_temporary(self)
            if transaction.pending:
                self.listening.check(transaction.pending)
                await self.coordinator.notifications.wait_for_room()
            if transaction.written or transaction.catalog is not None:
                await commits.write(self)
            elif transaction.pending:
                self.listening.commit(transaction.pending, self.settings["database"])
        except BaseException:
            self.rollback()
            raise
        self._end_committed(transaction)

    def begin_commit(self) -> asyncio.Future[Commit] | None:
        """Sends the effects of the transaction to the committer if that needs no waiting; None: call `commit`.

        When the commit is done, call `end_commit`. A `rollback` before that does not undo it.
        """
        return commits.submit_at_once(self)

    def end_commit(self, commit: asyncio.Future[Commit]) -> None:
        """Ends what `begin_commit` began. `commit`: its result, which is done."""
        try:
            commit.result()
        except BaseException as error:
            values: Sequence[pa.Table] | None = None
            if isinstance(error, Duplicate):
                values = cheap_key_tables(error.key, self.transaction.tables_of(error.table))
            failure = commits.failure(self, error, values)
            self.rollback()
            raise failure from None
        self._end_committed(self.transaction)

    def _end_committed(self, transaction: Transaction) -> None:
        if transaction.local is not None:
            self.settings = transaction.local
        self._end(transaction)

    def restore(self, number: int) -> None:
        """Undoes what the block has done since a savepoint, which is kept. `number`: that of `find_savepoint`."""
        transaction = self.transaction
        savepoint = transaction.savepoints[number]
        for payload in transaction.restore(savepoint):
            self.coordinator.log.discard(payload)
        if self.settings.revision is not savepoint.settings.revision:
            self.settings = savepoint.settings.copy()
            transaction.read_only = self.settings.read_only
        self.unlock_after(savepoint)
        del transaction.savepoints[number + 1 :]

    async def admit(self, written: Collection[ObjectId]) -> None:
        """Waits for readers of the tables that lag, unless the transaction has locks: then others wait for it."""
        if not self.transaction.locked:
            await self.coordinator.backpressure.admit(tuple(written))

    async def lock(
        self, tables: Collection[ObjectId], keys: Keys | None = None, *, nowait: bool = False, adds: bool = False
    ) -> None:
        """Adds exclusive locks to those of the transaction. `keys`: only of rows with these keys, of the only table.

        PgError 55P03 after `lock_timeout`. `nowait`: Unavailable at once. `adds`: rows with these keys may be added.
        """
        locks, timeout_s = self.coordinator.locks, 0 if nowait else self.lock_timeout_s
        if self.transaction.statement is not None:
            tables = [id for id in tables if id not in self.transaction.statement.relations]
        if keys is None:
            locked = await locks.acquire(tables, EXCLUSIVE, self, timeout_s)
        else:
            (table,) = tables
            item = self.state.items[table]
            is_primary = isinstance(item, Table) and item.primary_key_column == keys.column
            mode = (KEYS if adds else ROWS) if is_primary else None
            locked = await locks.acquire_keys(table, keys, self, timeout_s, mode)
        self.transaction.locked += locked

    def unlock(self) -> None:
        """Releases the locks of a block that has failed."""
        transaction = self.transaction
        self.advisory_locks.unlock_after(0, transaction.advisory)
        self.coordinator.locks.release(transaction.locked, self)
        transaction.locked = ()

    def unlock_after(self, savepoint: Savepoint) -> None:
        """Releases the locks that the block has acquired since a savepoint."""
        transaction = self.transaction
        self.advisory_locks.unlock_after(savepoint.advisory, transaction.advisory)
        self.unlock_since(savepoint.locked)

    def unlock_since(self, count: int) -> None:
        """Releases the locks of tables and keys that the transaction has acquired since it had `count` of them."""
        transaction = self.transaction
        self.coordinator.locks.release(transaction.locked[count:], self)
        transaction.locked = transaction.locked[:count]

    def end(self) -> None:
        """Ends the session: rolls back, and releases what it holds beyond its transaction."""
        self.rollback()
        self.advisory_locks.unlock_all({})
        self.listening.close()
        if self.has_temporary:
            self.coordinator.drop_temporary(self.process_id)

    def end_reads(self) -> None:
        """Ends a transaction that has nothing to commit."""
        self._end(self.transaction)

    def rollback(self) -> None:
        """Discards the transaction's effects and begins a new implicit one."""
        transaction = self.transaction
        for _, payload in transaction.payloads:
            self.coordinator.log.discard(payload)
        self.settings = transaction.settings
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        transaction.release()
        self.advisory_locks.unlock_after(0, transaction.advisory)
        self.coordinator.locks.release(transaction.locked, self)
        before = transaction.settings
        if before is self.settings or before.revision is not self.settings.revision:
            before = self.settings.copy()
        self.transaction = Transaction(before, read_only=before.read_only)
        self.transaction_us = 0
