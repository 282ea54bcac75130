"""Who runs when: statements wait here, slots take them, and cancelled ones leave.

A slot is a Spark session with a thread of its own; a statement holds one while it runs. Goals: first come, first
served; a statement goes to the free slot that already has most of its views, or that has run its text; one that is
cancelled while it waits is dropped, one that runs has its jobs cancelled and keeps its slot until its thread is really
done; background statements run only while no other does; a lost driver takes its slots with it, not its statements:
those run again in the next one's. While there is no driver and none can be had, statements are refused, but for the
patient ones: those wait.

Cancelling goes by job group, a new one for each run of a statement, and reaches jobs that are yet to be asked for.

Plain threads and locks, no event loop: futures are awaited from any loop. The pool outlives the drivers.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue

import pyarrow as pa
import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.spark.arrow_path import Disconnected, SessionPath
from server.spark.errors import Failure, out_of_memory, pg_error

RUNS_MAX = 3  # a statement that was running when this many drivers were lost may be what kills them
VIEWS_MAX = 64  # kept per slot between statements
VIEW_BYTES_MAX = 64 << 20
TEXTS_MAX = 256  # of statements that a slot is known to have run, and may have the plans of

_log = structlog.get_logger()


class Statement:
    """One query under way. `future` is resolved exactly once, unless the statement is cancelled first."""

    __slots__ = ("background", "begun_s", "cancelled", "future", "group", "parts", "patient", "runs", "sql", "views")

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
        self.parts: dict[str, float] = {}  # seconds, by what they were spent on in the last run
        self.future: Future[pa.Table] = Future()
        self.future.set_running_or_notify_cancel()  # nobody but the pool may change its state


class Slot:
    """One session and its thread, from the opening of the pool until its driver is gone."""

    def __init__(self, name: str, path: SessionPath, pool: Pool, on_lost: Callable[[], bool]) -> None:
        self.name = name
        self.on_lost = on_lost
        self.runs = 0
        self._path = path
        self._pool = pool
        self._inbox: SimpleQueue[Statement | None] = SimpleQueue()
        self._views: OrderedDict[str, pa.Table] = OrderedDict()  # what the session has, the least recently used first
        self._texts: OrderedDict[int, None] = OrderedDict()  # hashes of those that it has run, as are its views
        self._spent: set[str] = set()  # views too large to be kept: the session drops them with its next statement
        self._thread = threading.Thread(target=self._serve, name=f"tidewire-{name}", daemon=True)
        self._thread.start()

    def give(self, statement: Statement | None) -> None:
        """Hands over the next statement, or None: no more will come."""
        self._inbox.put(statement)

    def knows(self, statement: Statement) -> tuple[int, bool]:
        """How many bytes of the views the session has already, and whether it has run the text; of a free slot."""
        known = sum(table.nbytes + 1 for name, table in statement.views.items() if self._has(name, table))
        return known, hash(statement.sql) in self._texts

    def _has(self, name: str, table: pa.Table) -> bool:
        return name in self._views and self._views[name] is table

    def _serve(self) -> None:
        while (statement := self._inbox.get()) is not None:
            try:
                rows = self._run(statement)
            except Disconnected as error:
                _log.info("session lost", slot=self.name, reason=str(error))
                self._pool.lost(self, statement)
                break
            except Failure as failure:
                if failure.engine_gone:
                    self._pool.lost(self, statement)
                    break
                self._pool.finished(self)
                statement.future.set_exception(self._told(failure, statement))
            except BaseException as bug:  # told to whoever waits, as it would be without a thread between
                self._pool.finished(self)
                statement.future.set_exception(bug)
            else:
                self._pool.finished(self)
                statement.future.set_result(rows)
            del statement
        self._path.close()

    def _run(self, statement: Statement) -> pa.Table:
        new = {name: table for name, table in statement.views.items() if not self._has(name, table)}
        for name in new:
            self._views.pop(name, None)
        drop = self._surplus(statement.views, new)
        waited_s = time.monotonic() - statement.begun_s
        rows = self._path.run(statement.group, statement.sql, new, [*drop, *self._spent.difference(new)])
        self._texts[hash(statement.sql)] = None
        self._texts.move_to_end(hash(statement.sql))
        if len(self._texts) > TEXTS_MAX:
            self._texts.popitem(last=False)
        statement.parts = {"waiting": waited_s, **self._path.parts}
        self._spent = {name for name, table in statement.views.items() if table.nbytes > VIEW_BYTES_MAX}
        for name, table in statement.views.items():
            if name not in self._spent:
                self._views[name] = table
                self._views.move_to_end(name)
        return rows

    def _surplus(self, wanted: Mapping[str, pa.Table], new: Mapping[str, pa.Table]) -> list[str]:
        """Forgets the views that have not been used for longest, down to the bounds; returns their names."""
        count = len(self._views) + len(new)
        size = sum(table.nbytes for views in (self._views, new) for table in views.values())
        names = []
        for name in [name for name in self._views if name not in wanted]:
            if count <= VIEWS_MAX and size <= VIEW_BYTES_MAX:
                break
            count, size = count - 1, size - self._views.pop(name).nbytes
            names.append(name)
        return names

    def _told(self, failure: Failure, statement: Statement) -> PgError:
        if statement.cancelled:
            return PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
        return pg_error(failure, statement.sql)


class Pool:
    """The waiting statements and the slots of the driver that lives now, if one does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancels: SimpleQueue[str | None] = SimpleQueue()  # job groups, for the thread that cancels
        self._waiting: deque[Statement] = deque()
        self._background: deque[Statement] = deque()
        self._free: list[Slot] = []
        self._running: dict[Slot, Statement] = {}
        self._slots: frozenset[Slot] = frozenset()  # of the driver that lives now
        self._fell_alone = False  # whether the last driver ran one statement when it fell
        self._refusal: PgError | None = None
        self._ended = False

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
        """Takes the sessions of a new driver, by slot name.

        `cancel_jobs` cancels a job group; a thread of its own calls it. `on_lost` is called, from a slot's thread,
        when this driver turns out to be unusable; it makes sure that it ends, and says whether it ended for want of
        memory. Both may come late, when the pool is shut already.
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
        """The driver is gone: no slot takes a statement any more. Those that run one find out by themselves."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._slots:
            self._fell_alone = len(self._running) == 1
        self._slots = frozenset()
        for slot in self._free:
            slot.give(None)
        self._free.clear()
        self._cancels.put(None)

    def refuse(self, error: PgError) -> None:
        """Fails all that waits, and all that comes until the pool opens again, with `error`; not what is patient."""
        with self._lock:
            if self._ended:
                return
            self._refusal = error
            refused = self._take_refused()
        for statement in refused:
            statement.future.set_exception(error)

    def end(self, error: PgError) -> None:
        """Fails all that waits, and all that comes, with `error`."""
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
            self._dispatch()

    def cancel(self, statement: Statement) -> None:
        """Drops a waiting statement; ends a running one as soon as Spark lets go of it. Does not wait."""
        with self._lock:
            statement.cancelled = True
            if statement in self._running.values():
                self._cancels.put(statement.group)
            for queue in (self._waiting, self._background):
                if statement in queue:
                    queue.remove(statement)

    def finished(self, slot: Slot) -> None:
        """`slot` is done with its statement and can take another."""
        with self._lock:
            del self._running[slot]
            if slot in self._slots:
                self._free.append(slot)
                self._dispatch()
            else:
                slot.give(None)

    def lost(self, slot: Slot, statement: Statement) -> None:
        """`slot`'s driver is unusable. Its statement runs again elsewhere, unless it must be taken for the cause."""
        with self._lock:
            if slot in self._slots:  # we are the first to know: none of its neighbours may take the statement
                self._shut()
        no_memory = slot.on_lost()
        with self._lock:
            del self._running[slot]
            if statement.cancelled:
                return
            refusal = self._refused(statement)
            if refusal is None and statement.runs < RUNS_MAX and not (self._fell_alone and no_memory):
                (self._background if statement.background else self._waiting).appendleft(statement)
                self._dispatch()
                return
        statement.future.set_exception(refusal or (out_of_memory() if no_memory else _deadly(statement)))

    def _dispatch(self) -> None:
        """Gives waiting statements to free slots. The lock is held."""
        while self._free:
            if self._waiting:
                statement = self._waiting.popleft()
            elif self._background and not self._running:
                statement = self._background.popleft()
            else:
                return
            slot = max(self._free, key=lambda free: free.knows(statement))
            self._free.remove(slot)
            self._running[slot] = statement
            statement.runs += 1
            slot.runs += 1
            statement.group = f"{slot.name}/{slot.runs}"
            slot.give(statement)


def _deadly(statement: Statement) -> PgError:
    return PgError(
        SqlState.CRASH_SHUTDOWN,
        f"the Spark engine was lost {statement.runs} times while it ran this query",
        hint="See Spark's log: spark.log in the data directory, or that of the Spark Connect server.",
    )
