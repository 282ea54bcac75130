"""A table of PostgreSQL as the task of a sink writes it: changes and the frontier after them in one transaction.

    table = collection as of frontier - 1

The frontier is a row of `tidewire.sinks` in the same database. Each transaction first advances it from the value that
this server knows. If another one has advanced it, or this one in a transaction whose end it has not seen, nothing is
written, and the frontier is read again. Rows that changes delete or update must exist with all their values.
Otherwise another program has changed the table, and the transaction is rolled back.

The frontier's row also has the number of rows that the table then has, and the files in which they are. The rows are
counted in a transaction that finds other files, as after TRUNCATE; and at intervals, without delaying transactions. If
there are more or fewer rows, `files` becomes NULL, and no transaction is committed until the number is right.
"""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import structlog

from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT8
from server.coordinator.tasks import BackgroundTasks
from server.egress.downstream import Written
from server.egress.key_errors import key_error
from server.egress.net_changes import KeyViolation, NetChanges, check_key, net_changes
from server.egress.postgres import statements as sql
from server.egress.postgres.connection import COPY_ROWS, Connection
from server.egress.postgres.statements import STAGING, Statements
from server.egress.postgres.target import Target
from server.egress.sink_kind import SinkDefinition
from server.ingest.postgres.connection import Server, shortened
from server.ingest.upstream import UpstreamError

FEW_ROWS = 1_000  # changes of more rows are computed in a thread; those of fewer use the index of the key
COUNT_S = 60.0  # between two counts of the rows of a table, at least
COUNT_SHARE = 0.01  # of the time, at most, in which the rows of a table are counted

log = structlog.get_logger()


class Table:
    """Keeps a table equal to a collection, exactly once."""

    keeps_frontier = True
    target: str | None = None

    def __init__(self, definition: SinkDefinition, written: Written) -> None:
        self._definition = definition
        self._server = Server.of(definition.connection)
        self._target = Target.of(definition)
        self._written = written
        self._frontier = Timestamp(0)
        self._connection: Connection | None = None
        self._statements: Statements | None = None
        self._tasks = BackgroundTasks()

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Timestamp | None:
        self._connection = connection = await Connection.open(self._server)
        with self._server.understanding():
            if not (await connection.rows(sql.FRONTIERS_EXIST))[0][0]:
                await connection.execute(sql.CREATE_FRONTIERS)
            elif not (await connection.rows(sql.COUNTS_EXIST))[0][0]:
                await self._add_counts()
            rows = await connection.rows(sql.read_frontier(self._definition.identity))
            frontier = Timestamp(int(rows[0][0])) if rows else None
        if (frontier or 0) < (committed or 0):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'sink "{self._definition.name}" has written table "{self._target}" until {committed}, but '
                + (f"its frontier there is {frontier}" if frontier is not None else "its frontier there is missing"),
                detail=f"{self._server} was restored to an earlier state, or {sql.FRONTIERS} was changed.",
                hint="Drop the sink, empty the table, and create the sink again.",
            )
        if frontier is None:
            return None
        found = await self._found()
        if found is None:
            raise PgError(
                SqlState.UNDEFINED_TABLE,
                f'table "{self._target}" of sink "{self._definition.name}" does not exist',
                hint="Drop the sink and create it again.",
            )
        await self._prepare(found)
        advanced = await connection.execute(f"BEGIN; {self._advance(frontier, frontier, 0, found.files)}")
        if advanced != 1:
            await connection.execute(sql.lock_frontier(self._definition.identity))
            await self._check_rows()
        await connection.execute("COMMIT")
        self._begin_counting()
        self._frontier = frontier
        return frontier

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        connection, target, definition = self._connected, self._target, self._definition
        frontier = Timestamp(as_of + 1)
        named = sql.insert_frontier(definition.identity, definition.name, str(target), frontier)
        await connection.execute(f"BEGIN; {named}")
        found = await self._found()
        if found is None:
            await connection.execute(target.create)
            found = await self._found()
            assert found is not None
        elif rows is not None:
            await target.check_empty(connection)
        if rows is not None:
            if target.key is not None:
                await asyncio.to_thread(self._check_keys, rows)
            await self._insert(rows)
        count = found.row_count if rows is None else str(rows.num_rows)
        await connection.execute(f"{found.accept_rows(definition.identity, count)}; COMMIT")
        self._written.updates += rows.num_rows if rows is not None else 0
        await self._prepare(found)
        self._begin_counting()
        self._frontier = frontier

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        if upper <= self._frontier:
            return
        key = self._target.key
        try:
            if changes.num_rows > FEW_ROWS:
                net = await asyncio.to_thread(net_changes, changes, key)
            else:
                net = net_changes(changes, key)
        except KeyViolation as error:
            raise self._violated(error) from None
        connection, before = self._connected, self._frontier
        assert self._statements is not None
        begin = "BEGIN; " if changes.num_rows else ""
        added = net.inserted.num_rows - net.deleted
        advanced = await connection.execute(begin + self._advance(before, upper, added, self._statements.files))
        is_counted = advanced == 1
        if not is_counted:
            begin = "" if begin else "BEGIN; "
            advanced = await connection.execute(begin + self._advance(before, upper, added))
        if advanced != 1:
            raise UpstreamError(
                f'the frontier of table "{self._target}" of {self._server} was advanced by another server'
            )
        await self._remove(net)
        await self._insert(net.inserted)
        if not is_counted:  # after the changes, whose errors name a row
            await self._check_rows()
        if changes.num_rows or not is_counted:
            await connection.execute("COMMIT")
        self._written.updates += changes.num_rows
        self._frontier = upper

    async def close(self) -> None:
        await self._tasks.stop()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def forget(self) -> None:
        """Deletes the frontier."""
        self._connection = connection = await Connection.open(self._server)
        if (await connection.rows(sql.FRONTIERS_EXIST))[0][0]:
            await connection.execute(sql.delete_frontier(self._definition.identity))

    @property
    def _connected(self) -> Connection:
        assert self._connection is not None
        return self._connection

    async def _found(self) -> Statements | None:
        """The statements for the table as it is; None if it does not exist. PgError if it cannot be the target."""
        with self._server.understanding():
            return await self._target.statements(self._connected)

    async def _prepare(self, statements: Statements) -> None:
        """Creates the staging table."""
        await self._connected.execute(statements.create_staging)
        self._statements = statements

    async def _add_counts(self) -> None:
        try:
            await self._connected.execute(sql.ADD_COUNTS)
        except PgError as error:
            hint = f"Execute it there as the owner of {sql.FRONTIERS}: {sql.ADD_COUNTS}."
            raise PgError(error.sqlstate, error.message, hint=hint) from error

    def _advance(self, before: Timestamp, after: Timestamp, added_rows: int, files: str | None = None) -> str:
        return sql.advance_frontier(self._definition.identity, before, after, added_rows, files)

    async def _check_rows(self) -> None:
        """Within a transaction that has locked the frontier. PgError if the table has more or fewer rows than it."""
        assert self._statements is not None
        expected, found = await self._counted(self._connected, self._statements)
        if expected is not None and found != expected:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'table "{self._target}" of {self._server} was changed by somebody else: it has {found} rows instead '
                f"of {expected}",
                hint="Restore the rows there. Or drop the sink, empty the table, and create the sink again.",
            )
        await self._connected.execute(self._statements.accept_rows(self._definition.identity, str(found)))

    async def _counted(self, connection: Connection, statements: Statements) -> tuple[int | None, int]:
        """The number of rows that the table should have, None if it is unknown, and the number that it has."""
        with self._server.understanding():
            rows = await connection.rows(statements.count_rows(self._definition.identity))
            if not rows:
                return None, 0  # the frontier is missing: the next transaction reports it
            expected, found = rows[0]
            return None if expected is None else int(expected), int(found)

    def _begin_counting(self) -> None:
        assert self._statements is not None
        self._tasks.start(self._count(self._statements), f"rows of sink {self._definition.name}")

    async def _count(self, statements: Statements) -> None:
        """Counts the rows at intervals, on a connection of its own, so that transactions need not wait."""
        while True:
            began = time.monotonic()
            try:
                connection = await Connection.open(self._server)
                try:
                    expected, found = await self._counted(connection, statements)
                    if expected is not None and found != expected:
                        await connection.execute(sql.doubt_rows(self._definition.identity))
                finally:
                    await connection.close()
            except (PgError, UpstreamError) as error:
                log.warning("rows of a sink not counted", sink=self._definition.name, error=error.message)
            took = time.monotonic() - began
            await asyncio.sleep(max(COUNT_S, took / COUNT_SHARE - took))

    async def _insert(self, rows: pa.Table) -> None:
        """Inserts rows, within a transaction. PgError if a key is already there."""
        if rows.num_rows:
            target = self._target
            self._written.bytes += await self._connected.copy(
                rows, target.types, target.schema, target.table, target.names
            )
            self._written.messages += 1

    async def _remove(self, net: NetChanges) -> None:
        """Deletes and updates rows, within a transaction. PgError if one of them is not there."""
        if not net.staged.num_rows:
            return
        if net.staged.num_rows > FEW_ROWS:
            await self._connected.execute(sql.PREFER_HASH)
        elif self._target.key is not None:
            await self._connected.execute(sql.PREFER_INDEX)
        await self._stage(net)
        assert self._statements is not None
        deleted = await self._connected.execute(self._statements.delete) if net.deleted else 0
        updated = await self._connected.execute(self._statements.update) if net.updated else 0
        if (deleted, updated) != (net.deleted, net.updated):
            raise await self._difference(net)

    async def _stage(self, net: NetChanges) -> None:
        types = list(self._target.types)
        if self._target.key is None:
            types.append(INT8)
        else:
            assert self._statements is not None
            types += [self._target.types[i] for i in self._statements.values]
            types.append(BOOL)
        names = net.staged.column_names
        self._written.bytes += await self._connected.copy(net.staged, types, "pg_temp", STAGING, names)
        self._written.messages += 1

    async def _difference(self, net: NetChanges) -> PgError | UpstreamError:
        """Rolls back and finds a row that is not in the table as it should be."""
        assert self._statements is not None
        connection, name = self._connected, f'table "{self._target}" of {self._server}'
        await connection.execute("ROLLBACK; BEGIN")
        await self._stage(net)
        with self._server.understanding():
            found = await connection.rows(self._statements.find_difference)
            if not found:
                return UpstreamError(f"{name} was changed while the sink wrote to it")
            wanted, there = (None if text is None else shortened(str(text)) for text in found[0])
        state = "is missing" if there is None else f"is now {there}"
        return PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            f"{name} was changed by somebody else: the row {wanted} {state}",
            hint="Restore the row there. Or drop the sink, empty the table, and create the sink again.",
        )

    def _check_keys(self, rows: pa.Table) -> None:
        """PgError if a key is NULL. That keys are unique is checked by PostgreSQL."""
        key = self._target.key or ()
        try:
            for start in range(0, rows.num_rows, COPY_ROWS):
                check_key(rows.slice(start, COPY_ROWS), key)
        except KeyViolation as error:
            raise self._violated(error) from None

    def _violated(self, error: KeyViolation) -> PgError:
        return key_error(error, self._definition, "Create the sink with another KEY, or without.")
