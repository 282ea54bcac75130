"""Mistakes of a faulty server. Each is made in a child process, and a run of `world` must detect it, or, if that takes
a power failure, `test_lost_power`.

They replace functions of the server, with the effect that one wrong line would have.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from catalog import directory, holds, payloads
from catalog.batches import Batch, Payload
from catalog.holds import HoldPosition
from catalog.ids import ObjectId, Timestamp
from catalog.log import Log
from catalog.oracle import Oracle
from catalog.sequence_state import Position
from catalog.store import Store
from server.coordinator.committer import Commit, Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.sequences import State
from server.coordinator.subscriptions import Joined, Subscriptions
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.stream.feed import Feed
from server.dataflow.stream.selection import Selection
from server.timeline.frontiers import Frontiers


@dataclass(frozen=True)
class Mistake:
    """`needs`: what a run must include to detect the mistake."""

    make: Callable[[], None]
    needs: frozenset[str]


MISTAKES: dict[str, Mistake] = {}


def mistake(name: str, *needs: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def enter(make: Callable[[], None]) -> Callable[[], None]:
        MISTAKES[name] = Mistake(make, frozenset(needs))
        return make

    return enter


@mistake("writes are acknowledged before they are committed")
def acknowledge_early() -> None:
    commit, submit = Coordinator.commit, Coordinator.submit
    under_way: set[asyncio.Task[Commit]] = set()

    async def early(self: Coordinator, request: Request) -> Commit:
        if request.catalog is not None:
            return await commit(self, request)
        task = asyncio.create_task(commit(self, request))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return Commit(self.latest_time())

    def submit_early(self: Coordinator, request: Request) -> asyncio.Future[Commit]:
        submit(self, request)
        done: asyncio.Future[Commit] = asyncio.get_running_loop().create_future()
        done.set_result(Commit(self.latest_time()))
        return done

    Coordinator.commit = early  # type: ignore[method-assign]
    Coordinator.submit = submit_early  # type: ignore[method-assign]


@mistake("progress is one too high")
def tell_too_much() -> None:
    advance = Feed.advance
    Feed.advance = lambda self, upper: advance(self, Timestamp(upper + 1))  # type: ignore[method-assign]


@mistake("time is not reserved before it is used")
def reserve_nothing() -> None:
    Oracle.extension = lambda self: None  # type: ignore[method-assign]


@mistake("values of sequences are not reserved on disk")
def reserve_no_values() -> None:
    async def save(self: State, position: Position) -> None:
        pass

    State._save = save  # type: ignore[method-assign]


@mistake("a batch is now and then written twice")
def write_twice() -> None:
    insert, insert_alone = Log.insert, Log.insert_alone

    def twice(self: Log, tx: sqlite3.Connection, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch:
        if payload.inline is not None and random.random() < 0.05:
            insert(self, tx, collection, time, payload)
        return insert(self, tx, collection, time, payload)

    async def alone_twice(self: Log, collection: ObjectId, time: Timestamp, payload: Payload) -> Batch | None:
        if payload.inline is not None and random.random() < 0.05:
            await insert_alone(self, collection, time, payload)
        return await insert_alone(self, collection, time, payload)

    Log.insert = twice  # type: ignore[method-assign]
    Log.insert_alone = alone_twice  # type: ignore[method-assign]


@mistake("a transaction's tables are committed one by one")
def commit_in_parts() -> None:
    commit = Coordinator.commit

    async def in_parts(self: Coordinator, request: Request) -> Commit:
        parts = [Request([write]) for write in request.writes]
        parts += [Request(rows={id: rows}) for id, rows in request.rows.items()]
        parts += [Request(changes={id: changes}) for id, changes in request.changes.items()]
        if len(parts) < 2:
            return await commit(self, request)
        for part in parts:
            last = await commit(self, part)
        return last

    Coordinator.commit = in_parts  # type: ignore[method-assign]


@mistake("compaction loses its last batch")
def lose_the_last() -> None:
    merge = Log.merge
    Log.merge = lambda self, run: merge(self, run[:-1])  # type: ignore[method-assign]


@mistake("a subscriber that resumes does not get what lies at its progress", "holds")
def resume_too_late() -> None:
    join = Subscriptions.join_collection

    async def later(self: Subscriptions, id: ObjectId, as_of: Timestamp, selection: Selection | None = None) -> Joined:
        joined = await join(self, id, as_of, selection)
        return replace(joined, times=[time for time in joined.times if time > as_of + 1])

    Subscriptions.join_collection = later  # type: ignore[method-assign]


@mistake("a subscriber that resumes gets once more what lies at its AS OF", "holds")
def resume_too_early() -> None:
    join = Subscriptions.join_collection

    async def earlier(
        self: Subscriptions, id: ObjectId, as_of: Timestamp, selection: Selection | None = None
    ) -> Joined:
        repeated = self._log.tables(id, as_of, as_of + 1) if self._log.times(id, as_of, as_of + 1) else []
        joined = await join(self, id, as_of, selection)

        async def changes(time: Timestamp) -> list[pa.Table]:
            return await joined.changes(time) + (repeated if time == joined.times[0] else [])

        return replace(joined, changes=changes)

    Subscriptions.join_collection = earlier  # type: ignore[method-assign]


@mistake("a materialized view's changes get the time at which they were computed", "spark")
def compute_late() -> None:
    write = Dataflow._write

    async def late(self: Dataflow, times: Sequence[Timestamp], found: Sequence[pa.Table]) -> None:
        last = times[-1] if self.item is None else max(times[-1], self._frontiers.least_upper(self.inputs) - 1)
        await write(self, [*times[:-1], Timestamp(last)], found)

    Dataflow._write = late  # type: ignore[method-assign]


@mistake("the time of an advanced hold is not on disk", "holds")
def forget_advances() -> None:
    def only_new(tx: sqlite3.Connection, positions: Iterable[tuple[ObjectId, HoldPosition]]) -> None:
        tx.executemany("INSERT OR IGNORE INTO holds VALUES (?, ?, ?)", [(id, p.at, p.status) for id, p in positions])

    holds.save = only_new


@mistake("history goes though it is held", "holds")
def hold_nothing() -> None:
    since = Frontiers.since

    def unheld(self: Frontiers, id: ObjectId) -> Timestamp:
        holders, self.holders_of = self.holders_of, {}
        try:
            return since(self, id)
        finally:
            self.holders_of = holders

    Frontiers.since = unheld  # type: ignore[method-assign]


@mistake("commits are not synced", "power")
def commit_unsynced() -> None:
    connect = Store._connect

    def careless(self: Store, held: ExitStack) -> sqlite3.Connection:
        connection = connect(self, held)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    Store._connect = careless  # type: ignore[method-assign]


@mistake("SQLite's log is synced with its checkpoints only", "power")
def commit_rarely_synced() -> None:
    connect = Store._connect

    def careless(self: Store, held: ExitStack) -> sqlite3.Connection:
        connection = connect(self, held)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    Store._connect = careless  # type: ignore[method-assign]


@mistake("payload files are not synced", "power")
def leave_files_unsynced() -> None:
    sync = payloads.sync
    payloads.sync = lambda path: sync(path) if os.path.isdir(path) else None


@mistake("a new data directory's name is not synced", "power")
def leave_the_name_unsynced() -> None:
    directory.sync = lambda path: None


@mistake("the directory of payload files is not synced", "power")
def leave_directories_unsynced() -> None:
    sync = payloads.sync
    payloads.sync = lambda path: None if os.path.isdir(path) else sync(path)
