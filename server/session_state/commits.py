"""Commits of transactions: their effects become requests to the committer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from catalog.drops import without_items
from catalog.ids import ObjectId
from catalog.layout import Layout
from catalog.objects.tables import OnCommit, Table
from catalog.sequence_state import of_generations
from server.coordinator.committer import Commit, Conflict, Request
from server.coordinator.key_indexes import Duplicate
from server.coordinator.key_values import key_tables
from server.coordinator.locks import ADD
from server.coordinator.payloads import prepare_payloads
from server.coordinator.row_buffer import RowBuffer
from server.coordinator.snapshot_cache import layout_of
from server.session_state import key_checks
from server.session_state.listening import Pending
from server.session_state.session_state import SessionState
from server.session_state.transaction_errors import serialization_failure
from server.timeline.frontiers import FullHolder, Holder


def submit_at_once(session: SessionState) -> asyncio.Future[Commit] | None:
    """Sends the effects of the transaction to the committer if that needs no waiting; None: call `write`."""
    transaction, coordinator = session.transaction, session.coordinator
    written = transaction.written
    if (
        session.has_temporary
        or not written
        or transaction.payloads
        or transaction.catalog is not None
        or transaction.holder is not None
        or transaction.pending
    ):
        return None
    rows, changes, tables = transaction.changes()
    if tables:
        return None
    if not transaction.locked:  # a locked transaction was admitted before it read
        if coordinator.backpressure.delays(written):
            return None
        locked = coordinator.locks.acquire_at_once(written, ADD, session)
        if locked is None:
            return None
        transaction.locked = locked
    request = Request(
        rows=rows,
        changes=changes,
        unchanged=transaction.unchanged,
        keys=transaction.keys,
        tables=transaction.tables,
        key_changes=transaction.key_changes,
    )
    return coordinator.submit(request)


async def write(session: SessionState) -> None:
    """Makes the effects of the transaction durable. PgError if they conflict with other commits."""
    coordinator, transaction = session.coordinator, session.transaction
    for payload in transaction.forget_dropped(session.state) if transaction.catalog is not None else ():
        coordinator.log.discard(payload)
    shared: tuple[str, ...] = ()
    written = transaction.written
    if not transaction.locked:  # a locked transaction was admitted before it read
        await coordinator.backpressure.admit(tuple(written))
        shared = await coordinator.locks.acquire(written, ADD, session, session.lock_timeout_s)
    try:
        await key_checks.prepare_commit(session)
        rows, changes, tables = transaction.changes()
        writes = [
            *transaction.payloads,
            *await prepare_payloads(coordinator.log, tables, partial(written_layout, session)),
        ]
        transaction.payloads = []  # from here on the request owns their files
        request = Request(
            writes=writes,
            rows=rows,
            changes=changes,
            unchanged=transaction.unchanged,
            keys=transaction.keys,
            tables=transaction.tables,
            key_changes=transaction.key_changes,
            new_keys=transaction.new_keys,
            catalog=transaction.catalog,
            history_starts=transaction.history_starts,
            source_state=of_generations({key: state.position for key, state in transaction.sequences.items()}),
        )
        for holder in (transaction.holder, transaction.history_holder):
            if holder is not None:  # the request may commit although this task is cancelled
                request.done.add_done_callback(partial(_release, holder))
        transaction.holder = transaction.history_holder = None
        _notify_after(session, request, transaction.pending)
        await coordinator.commit(request)
    except (Conflict, Duplicate) as error:
        values: Sequence[pa.Table] | None = None
        if isinstance(error, Duplicate):
            values = await key_tables(coordinator.engine, error.key, _written(request, error.table))
        raise failure(session, error, values) from None
    finally:
        coordinator.locks.release(shared, session)


def end_temporary(session: SessionState) -> None:
    """Drops and empties the temporary tables with ON COMMIT. No transaction leaves rows in them."""
    transaction = session.transaction
    before, own = session.state, session.temporary_schema
    dropped: list[ObjectId] = []
    tables = [] if own is None else [item for item in before.items_of(Table) if item.schema_id == own.id]
    for table in tables:
        if table.on_commit is OnCommit.DROP:
            dropped.append(table.id)
        elif table.on_commit is OnCommit.DELETE_ROWS:
            for payload in transaction.forget(table.id):
                session.coordinator.log.discard(payload)
    if dropped:
        base = before if transaction.catalog is None else transaction.catalog[0]
        state = without_items(before, dropped)
        transaction.catalog = (base, replace(state.settled(before, session.role), version=base.version + 1))


def failure(session: SessionState, error: BaseException, values: Sequence[pa.Table] | None) -> BaseException:
    """Returns the error for the client when the committer has refused a request.

    `values`: the key tables of what the request wrote, for a Duplicate; None if they are not known.
    """
    match error:
        case Conflict():
            return serialization_failure(session.state, error.relation)
        case Duplicate() if error.key.id in session.transaction.arbiters:
            return serialization_failure(session.state, error.table)
        case Duplicate():
            return key_checks.committed_duplicate(session, error.table, error.key, error.code, values)
        case _:
            return error


def written_layout(session: SessionState, id: ObjectId) -> Layout | None:
    """The layout of the transaction's changes of a table. DDL in the transaction has converted earlier changes."""
    written = None if session.transaction.catalog is not None else session.transaction.tables.get(id)
    return layout_of(written or session.state.items.get(id))


def _notify_after(session: SessionState, request: Request, pending: Pending) -> None:
    """Applies what LISTEN and NOTIFY do when the request is committed, even if this session no longer waits for it.

    The callbacks of requests run in the order of their commits, and before the waiting session continues.
    """
    if pending:
        database = session.settings["database"]

        def notify(done: asyncio.Future[Commit]) -> None:
            if not done.cancelled() and done.exception() is None:
                session.listening.commit(pending, database)

        request.done.add_done_callback(notify)


def _written(request: Request, table: ObjectId) -> list[pa.Table]:
    """The rows and changes of a table in a request."""
    found = (write for id, write in request.each_write() if id == table)
    return [write.so_far() if isinstance(write, RowBuffer) else write for write in found if write is not None]


def _release(holder: Holder | FullHolder, _: asyncio.Future[Commit]) -> None:
    holder.release()
