"""The statement queue and its assignment to slots.

A slot is a Spark session with its own thread; a statement occupies one slot while it runs. Rules:

- Statements start in the order of arrival. A statement is given to the free slot that already has most of its views
  (in bytes), then to one that has run its text.
- A statement that is cancelled in the queue is removed. If it runs, its jobs are cancelled, and it keeps its slot until
  the slot's thread has finished.
- Background statements start only when no other statement runs.
- When a driver is lost, its slots are discarded. Its statements run again on the next driver, in the order of arrival.
- The statement that has run longest is the probable cause when memory is short. Others that fail for lack of memory at
  the same time are repeated.
- While no driver can be started, statements are refused, except patient ones, which wait.

Cancellation is by job group, which includes jobs that have not been submitted yet. Each run of a statement has a new
group.

The pool uses threads and locks, no event loop, so futures can be awaited from any loop. It outlives the drivers.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue

import pyarrow as pa
import structlog

from catalog.updates import size_of
from protocol.pgwire.errors import PgError, SqlState
from server.spark.errors import Failure, out_of_memory, pg_error
from server.spark.session_path import Disconnected, SessionPath

RUNS_MAX = 3  # of a statement. It runs alone the last time, and is the cause if the driver is lost again
ALONE_S = 60.0  # how long a last run waits for the others to end, and how long others then wait for it
VIEWS_MAX = 64  # views kept per slot between statements
VIEW_BYTES_MAX = 64 << 20  # total bytes of the views kept per slot
TEXTS_MAX = 1000  # remembered statement texts per slot; the session may have plans for them

_log = structlog.get_logger()


class Statement:
    """One submitted query. `future` is resolved exactly once, unless the statement is cancelled first."""

    __slots__ = (
        "background",
        "begun_s",
        "cancelled",
        "future",
        "group",
        "parts",
        "patient",
        "run_s",
        "runs",
        "sql",
        "views",
    )

    def __init__(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> None:
        self.sql = sql
        self.views = views
        self.patient = patient
        self.background = background
        self.cancelled = False
        self.runs = 0
        self.group = ""  # of the last run
        self.begun_s = time.monotonic()
        self.run_s = 0.0
        """When the last run began or, after it, when the statement was queued again."""
        self.parts: dict[str, float] = {}  # durations of the phases of the last run, in seconds
        self.future: Future[pa.Table] = Future()
        self.future.set_running_or_notify_cancel()  # prevents Future.cancel: only the pool may change its state


class Slot:
    """A session and its thread. Created by `Pool.open`; discarded when its driver ends."""

    def __init__(self, name: str, path: SessionPath, pool: Pool, on_lost: Callable[[], bool]) -> None:
        self.name = name
        self.on_lost = on_lost
        self.runs = 0
        self._path = path
        self._pool = pool
        self._inbox: SimpleQueue[Statement | None] = SimpleQueue()
        self._views: OrderedDict[str, pa.Table] = OrderedDict()  # the session's views, least recently used first
        self._view_bytes = 0  # of `_views`
        self._texts: OrderedDict[int, None] = OrderedDict()  # hashes of the texts it has run, in the same order
        self._spent: set[str] = set()  # views too large to be kept; dropped by the next statement
        self._thread = threading.Thread(target=self._serve, name=f"tidewire-{name}", daemon=True)
        self._thread.start()

    def assign(self, statement: Statement | None) -> None:
        """Assigns the next statement. None ends the slot's thread."""
        self._inbox.put(statement)

    def affinity(self, statement: Statement) -> tuple[int, bool]:
        """Returns (bytes of the statement's views that the session has, whether it has run the text).

        May be called for free slots only.
        """
        known = sum(size_of(table) + 1 for name, table in statement.views.items() if self._has(name, table))
        return known, hash(statement.sql) in self._texts

    def _has(self, name: str, table: pa.Table) -> bool:
        return name in self._views and self._views[name] is table

    def _serve(self) -> None:
        while (statement := self._inbox.get()) is not None:
            try:
                rows = self._run(statement)
            except Disconnected as error:
                _log.info("Spark session lost", slot=self.name, reason=str(error))
                self._pool.lost(self, statement)
                break
            except Failure as failure:
                if failure.spark_stopped:
                    self._pool.lost(self, statement)
                    break
                if failure.no_memory and self._pool.repeated(self, statement):
                    continue
                self._pool.finished(self)
                statement.future.set_exception(self._error_of(failure, statement))
            except BaseException as bug:  # a bug: raised in the caller that awaits the future
                self._pool.finished(self)
                statement.future.set_exception(bug)
            else:
                self._pool.finished(self)
                statement.future.set_result(rows)
            del statement
        self._path.close()

    def _run(self, statement: Statement) -> pa.Table:
        new = {name: table for name, table in statement.views.items() if not self._has(name, table)}
        for name in new.keys() & self._views.keys():
            self._remove(name)
        drop = self._surplus(statement.views, new)
        waited_s = time.monotonic() - statement.begun_s
        drop += self._spent.difference(new)
        rows = self._path.run(statement.group, statement.sql, new, drop, repeats=statement.patient)
        self._texts[hash(statement.sql)] = None
        self._texts.move_to_end(hash(statement.sql))
        if len(self._texts) > TEXTS_MAX:
            self._texts.popitem(last=False)
        statement.parts = {"waiting": waited_s, **self._path.parts}
        self._spent = {name for name, table in statement.views.items() if size_of(table) > VIEW_BYTES_MAX}
        for name in statement.views:
            if name in self._spent:
                continue
            if name in new:
                self._views[name] = new[name]
                self._view_bytes += size_of(new[name])
            self._views.move_to_end(name)
        return rows

    def _remove(self, name: str) -> None:
        self._view_bytes -= size_of(self._views.pop(name))

    def _surplus(self, wanted: Mapping[str, pa.Table], new: Mapping[str, pa.Table]) -> list[str]:
        """Removes the least recently used views until VIEWS_MAX and VIEW_BYTES_MAX hold. Returns their names."""
        new_bytes = sum(map(size_of, new.values()))
        names: list[str] = []
        for name in [name for name in self._views if name not in wanted]:
            if len(self._views) + len(new) <= VIEWS_MAX and self._view_bytes + new_bytes <= VIEW_BYTES_MAX:
                break
            self._remove(name)
            names.append(name)
        return names

    def _error_of(self, failure: Failure, statement: Statement) -> PgError:
        if statement.cancelled:
            return PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
        return pg_error(failure, statement.sql)


class Pool:
    """The queued statements and the slots of the current driver, if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancels: SimpleQueue[str | None] = SimpleQueue()  # job groups to cancel; None ends the cancelling thread
        self._waiting: deque[Statement] = deque()
        self._background: deque[Statement] = deque()
        self._free: list[Slot] = []
        self._running: dict[Slot, Statement] = {}  # in the order of their start
        self._slots: frozenset[Slot] = frozenset()  # of the current driver
        self._exhausted_s = 0.0  # when a statement last exhausted the memory
        self._lost_alone = False  # whether exactly one statement ran when the last driver was lost
        self._refusal: PgError | None = None
        self._ended = False
        self.used_s = 0.0
        """When the last statement that is not a background one was submitted, in seconds of `time.monotonic`."""

    @property
    def is_open(self) -> bool:
        return bool(self._slots)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._background)

    def open(
        self, paths: Mapping[str, SessionPath], cancel_jobs: Callable[[str], None], on_lost: Callable[[], bool]
    ) -> None:
        """Adds the sessions of a new driver, by slot name, and starts queued statements.

        `cancel_jobs` cancels a job group; it is called from a separate thread. `on_lost` is called from a slot's thread
        when the driver is unusable; it ensures that the driver ends and returns whether it ran out of memory. Both may
        be called after `shut`.
        """
        slots = [Slot(name, path, self, on_lost) for name, path in paths.items()]
        with self._lock:
            self._slots = frozenset(slots)
            if not self._ended:
                self._refusal = None
            self._cancels = cancels = SimpleQueue[str | None]()
            self._free.extend(slots)
            self._dispatch()

        def cancel_all() -> None:
            while (group := cancels.get()) is not None:
                cancel_jobs(group)

        threading.Thread(target=cancel_all, name="tidewire-cancel", daemon=True).start()

    def shut(self) -> None:
        """Discards the slots because the driver has ended. Slots that run a statement detect the loss themselves."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._slots:
            self._lost_alone = len(self._running) == 1
        self._slots = frozenset()
        for slot in self._free:
            slot.assign(None)
        self._free.clear()
        self._cancels.put(None)

    def refuse(self, error: PgError) -> None:
        """Fails queued statements, and new ones until the pool is opened again, with `error`; not patient ones."""
        with self._lock:
            if self._ended:
                return
            self._refusal = error
            refused = self._take_refused()
        for statement in refused:
            statement.future.set_exception(error)

    def end(self, error: PgError) -> None:
        """Fails all queued and all future statements with `error`."""
        with self._lock:
            self._refusal, self._ended = error, True
            refused = self._take_refused()
        for statement in refused:
            statement.future.set_exception(error)

    def _take_refused(self) -> list[Statement]:
        refused = []
        for queue in (self._waiting, self._background):
            refused += [statement for statement in queue if self._refused(statement)]
            kept = [statement for statement in queue if not self._refused(statement)]
            queue.clear()
            queue.extend(kept)
        return refused

    def _refused(self, statement: Statement) -> PgError | None:
        return None if statement.patient and not self._ended else self._refusal

    def submit(self, statement: Statement) -> None:
        with self._lock:
            if (refusal := self._refused(statement)) is not None:
                raise refusal
            (self._background if statement.background else self._waiting).append(statement)
            if not statement.background:
                self.used_s = statement.begun_s
            self._dispatch()

    def cancel(self, statement: Statement) -> None:
        """Removes a queued statement, or requests the cancellation of a running one. Does not wait."""
        with self._lock:
            statement.cancelled = True
            if statement in self._running.values():
                self._cancels.put(statement.group)
            for queue in (self._waiting, self._background):
                if statement in queue:
                    queue.remove(statement)
                    self._dispatch()  # others may have waited for it

    def finished(self, slot: Slot) -> None:
        """Called by `slot` when its statement has finished. Makes the slot free."""
        with self._lock:
            self._finished(slot)

    def _finished(self, slot: Slot) -> None:
        del self._running[slot]
        if slot in self._slots:
            self._free.append(slot)
            self._dispatch()
        else:
            slot.assign(None)

    def repeated(self, slot: Slot, statement: Statement) -> bool:
        """Called by `slot` when its statement has failed for lack of memory. Returns whether the statement is repeated.

        It is repeated, at most until it has run RUNS_MAX times, if an older one runs or has failed for lack of memory
        meanwhile. If so, makes the slot free.
        """
        with self._lock:
            if statement is next(iter(self._running.values())) and statement.run_s > self._exhausted_s:
                self._exhausted_s = time.monotonic()
                return False
            if statement.cancelled or statement.runs >= RUNS_MAX or self._refused(statement):
                return False
            self._queue_again(statement)
            self._finished(slot)
        return True

    def lost(self, slot: Slot, statement: Statement) -> None:
        """Called by `slot` when its driver is unusable. Queues its statement again.

        The statement fails instead if it is the cause: it has run RUNS_MAX times, the last time alone, or it was the
        only running one and the driver ran out of memory.
        """
        with self._lock:
            if slot in self._slots:  # the first report of the loss: no other slot of this driver may take a statement
                self._shut()
        no_memory = slot.on_lost()
        with self._lock:
            del self._running[slot]
            if statement.cancelled:
                return
            refusal = self._refused(statement)
            if refusal is None and statement.runs < RUNS_MAX and not (self._lost_alone and no_memory):
                self._queue_again(statement)
                self._dispatch()
                return
        statement.future.set_exception(refusal or (out_of_memory() if no_memory else _lost_too_often(statement)))

    def _queue_again(self, statement: Statement) -> None:
        statement.run_s = time.monotonic()
        if statement.runs == RUNS_MAX - 1:
            self._dispatch_later()
        queue = self._background if statement.background else self._waiting
        bisect.insort(queue, statement, key=lambda queued: queued.begun_s)

    def _dispatch_later(self) -> None:
        """Dispatches after ALONE_S: a statement may have waited long enough then."""

        def dispatch() -> None:
            with self._lock:
                self._dispatch()

        timer = threading.Timer(ALONE_S, dispatch)
        timer.daemon = True
        timer.start()

    def _dispatch(self) -> None:
        """Assigns queued statements to free slots. The caller holds the lock.

        The last run of a statement is alone, so that it does not fail because of another statement. This delays other
        statements by at most ALONE_S, or twice that: it may be the last run of one that does not end.
        """
        now_s = time.monotonic()

        def is_last(statement: Statement, runs: int) -> bool:
            return statement.runs == runs and now_s - statement.run_s < ALONE_S

        while self._free and not any(is_last(running, RUNS_MAX) for running in self._running.values()):
            if self._waiting:
                if self._running and is_last(self._waiting[0], RUNS_MAX - 1):
                    return
                statement = self._waiting.popleft()
            elif self._background and not self._running:
                statement = self._background.popleft()
            else:
                return
            slot = max(self._free, key=lambda free: free.affinity(statement))
            self._free.remove(slot)
            self._running[slot] = statement
            statement.runs += 1
            statement.run_s = now_s
            if statement.runs == RUNS_MAX:
                self._dispatch_later()
            slot.runs += 1
            statement.group = f"{slot.name}/{slot.runs}"
            slot.assign(statement)


def _lost_too_often(statement: Statement) -> PgError:
    return PgError(
        SqlState.CRASH_SHUTDOWN,
        f"the Spark engine was lost {statement.runs} times while it ran this query",
        hint="See Spark's log: spark.log in the data directory, or that of the Spark Connect server.",
    )
