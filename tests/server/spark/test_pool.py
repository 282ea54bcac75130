"""The rules of the statement pool, with mock sessions: without Spark and without timing."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.spark import pool as rules
from server.spark.errors import Failure, Fault
from server.spark.pool import Pool, Statement
from server.spark.session_path import Disconnected, SessionPath
from tests.polling import HANG_S

ROWS = pa.table({"c0": [1]})


class PlayedPath:
    """A mock session. The test decides when and how its statements end."""

    parts: Mapping[str, float] = {}

    def __init__(self, stage: Stage, slot: str) -> None:
        self._stage = stage
        self.slot = slot

    def run(
        self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool = False
    ) -> pa.Table:
        end: Future[pa.Table] = Future()
        self._stage.groups[sql] = group
        self._stage.begun.put((self.slot, sql, sorted(views), list(drop), end))
        return end.result(HANG_S)

    def close(self) -> None:
        self._stage.closed.put(self.slot)


Begun = tuple[str, str, list[str], list[str], "Future[pa.Table]"]


class Stage:
    """A pool with mock sessions, whose JVM the test plays."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.begun: SimpleQueue[Begun] = SimpleQueue()
        self.closed: SimpleQueue[str] = SimpleQueue()
        self.cancelled: SimpleQueue[str] = SimpleQueue()
        self.groups: dict[str, str] = {}
        self.lost = 0
        self.no_memory = False

    def open(self, *slots: str) -> None:
        paths: dict[str, SessionPath] = {slot: PlayedPath(self, slot) for slot in slots}
        self.pool.open(paths, self.cancelled.put, self._on_lost)

    def _on_lost(self) -> bool:
        self.lost += 1
        return self.no_memory

    def submit(
        self,
        sql: str,
        views: Mapping[str, pa.Table] | None = None,
        *,
        patient: bool = False,
        background: bool = False,
    ) -> Statement:
        statement = Statement(sql, views or {}, patient=patient, background=background)
        self.pool.submit(statement)
        return statement

    def next(self) -> Begun:
        return self.begun.get(timeout=HANG_S)

    def run(self, sql: str, views: Mapping[str, pa.Table]) -> tuple[str, list[str], list[str]]:
        """Runs one statement to its end. Returns its slot, the views that were sent and the views that were dropped."""
        statement = self.submit(sql, views)
        slot, _, sent, dropped, end = self.next()
        end.set_result(ROWS)
        assert statement.future.result(HANG_S) is ROWS
        return slot, sent, dropped


@pytest.fixture
def stage() -> Iterator[Stage]:
    played = Stage()
    yield played
    played.pool.shut()


def code(statement: Statement) -> SqlState:
    error = statement.future.exception(HANG_S)
    assert isinstance(error, PgError)
    return error.sqlstate


def test_statements_wait_for_the_pool_and_run_in_order(stage: Stage) -> None:
    first, second = stage.submit("1"), stage.submit("2")
    assert stage.pool.waiting == 2
    stage.open("a")
    end = stage.next()
    assert (end[1], stage.pool.running, stage.pool.waiting) == ("1", 1, 1)
    end[4].set_result(ROWS)
    assert first.future.result(HANG_S) is ROWS
    end = stage.next()
    end[4].set_result(ROWS)
    assert (end[1], second.future.result(HANG_S)) == ("2", ROWS)


def test_a_table_is_sent_once_and_its_slot_is_preferred(stage: Stage) -> None:
    stage.open("a", "b")
    large, small = pa.table({"c0": range(100)}), pa.table({"c0": range(10)})
    slot, sent, _ = stage.run("1", {"l": large})
    assert sent == ["l"]
    other, sent, _ = stage.run("2", {"s": small})
    assert (other, sent) == ("b" if slot == "a" else "a", ["s"])
    assert stage.run("3", {"l": large, "s": small}) == (slot, ["s"], [])
    # another table object, whose rows may differ
    assert stage.run("4", {"l": pa.table({"c0": range(100)})})[1] == ["l"]


def test_views_are_dropped_when_there_are_too_many(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "VIEWS_MAX", 2)
    stage.open("a")
    tables = {name: pa.table({"c0": [1]}) for name in "abcd"}
    for name in "ab":
        stage.run(name, {name: tables[name]})
    stage.run("a again", {"a": tables["a"]})
    assert stage.run("c", {"c": tables["c"]}) == ("a", ["c"], ["b"])  # b is the least recently used
    assert stage.run("all", tables)[2] == []  # views of the current statement are kept even beyond the limit


def test_views_are_dropped_when_they_are_too_large(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "VIEW_BYTES_MAX", 1000)
    stage.open("a")
    for number in range(3):
        _, _, dropped = stage.run("1", {f"v{number}": pa.table({"c0": range(100)})})
        assert dropped == ([f"v{number - 1}"] if number else [])


def test_a_view_that_is_too_large_is_released_immediately(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not wait for the next statement, which may never come."""
    monkeypatch.setattr(rules, "VIEW_BYTES_MAX", 100)
    stage.open("a")
    table = pa.table({"c0": range(100)})
    kept = weakref.ref(table)
    stage.run("1", {"v": table})
    del table
    deadline = time.monotonic() + HANG_S
    while kept() is not None:
        assert time.monotonic() < deadline
        gc.collect()
    assert stage.run("2", {})[1:] == ([], ["v"])
    assert stage.run("3", {})[1:] == ([], [])


def test_after_a_failed_statement_views_are_sent_again(stage: Stage) -> None:
    stage.open("a")
    table = pa.table({"c0": [1]})
    stage.run("1", {"v": table})
    failed = stage.submit("2", {"v": pa.table({"c0": [2]})})
    stage.next()[4].set_exception(Failure((Fault("x", "", "DIVIDE_BY_ZERO"),), ""))
    assert code(failed) == SqlState.DIVISION_BY_ZERO
    assert stage.run("3", {"v": table})[1] == ["v"]


def test_a_client_gets_only_the_exception_of_a_python_workers_traceback(stage: Stage) -> None:
    stage.open("a")
    failed = stage.submit("1")
    said = "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
    said += '  File "/x/worker.py", line 1, in main\n    work()\nValueError: no such column\n'
    stage.next()[4].set_exception(Failure((Fault("org.apache.spark.api.python.PythonException", said),), said))
    with pytest.raises(PgError) as caught:
        failed.future.result(HANG_S)
    assert caught.value.message == "the query could not be computed: ValueError: no such column"


def test_background_statements_run_only_while_no_other_runs(stage: Stage) -> None:
    stage.open("a", "b")
    real = stage.submit("real")
    end = stage.next()
    spare = stage.submit("spare", background=True)
    assert stage.pool.waiting == 1
    end[4].set_result(ROWS)
    real.future.result(HANG_S)
    end = stage.next()
    assert end[1] == "spare"
    end[4].set_result(ROWS)
    spare.future.result(HANG_S)


def test_a_waiting_statement_is_dropped_when_cancelled(stage: Stage) -> None:
    statement = stage.submit("1")
    stage.pool.cancel(statement)
    stage.open("a")
    assert stage.pool.waiting == 0
    assert stage.run("2", {})[0] == "a"


def test_a_cancelled_statement_occupies_its_slot_until_it_ends(stage: Stage) -> None:
    stage.open("a", "b")
    statement, neighbour = stage.submit("1"), stage.submit("2")
    ends = {begun[1]: begun for begun in (stage.next(), stage.next())}
    stage.pool.cancel(statement)
    assert stage.cancelled.get(timeout=HANG_S) == stage.groups["1"] != stage.groups["2"]
    assert stage.pool.running == 2
    ends["1"][4].set_exception(Failure((Fault("x", "cancelled", "SPARK_JOB_CANCELLED"),), ""))
    assert code(statement) == SqlState.QUERY_CANCELED
    ends["2"][4].set_result(ROWS)
    assert neighbour.future.result(HANG_S) is ROWS


def test_statements_of_a_lost_jvm_run_again_in_the_next(stage: Stage) -> None:
    stage.open("a", "b")
    running = stage.submit("running")
    stage.next()[4].set_exception(Disconnected())
    assert stage.closed.get(timeout=HANG_S)  # the other slot, which reported nothing, does not get the statement
    assert stage.closed.get(timeout=HANG_S)
    assert (stage.lost, stage.pool.is_open, stage.pool.waiting) == (1, False, 1)
    later = stage.submit("later")
    stage.open("c")
    for statement in (running, later):
        stage.next()[4].set_result(ROWS)
        assert statement.future.result(HANG_S) is ROWS


@pytest.mark.parametrize("lost", [("1", "2", "3"), ("3", "1", "2")])
def test_statements_of_a_lost_jvm_run_again_in_the_order_of_their_arrival(stage: Stage, lost: tuple[str, ...]) -> None:
    """The oldest is the probable cause when memory is short again."""
    stage.open("a", "b", "c")
    statements = [stage.submit(sql) for sql in ("1", "2", "3")]
    ends = {sql: end for _, sql, _, _, end in (stage.next() for _ in statements)}
    for waiting, sql in enumerate(lost, 1):
        ends[sql].set_exception(Disconnected())
        while stage.pool.waiting < waiting:
            time.sleep(0.001)
    stage.open("d")
    for statement in statements:
        _, sql, _, _, end = stage.next()
        assert sql == statement.sql
        end.set_result(ROWS)


def test_a_statement_that_repeatedly_ends_the_jvm_is_abandoned(stage: Stage) -> None:
    statement = stage.submit("1")
    for number in range(rules.RUNS_MAX):
        stage.open(f"slot-{number}")
        stage.next()[4].set_exception(Failure((Fault("x", "anything"),), "", spark_stopped=True))
    assert code(statement) == SqlState.CRASH_SHUTDOWN


def test_a_statement_that_takes_all_memory_is_not_run_again(stage: Stage) -> None:
    stage.no_memory = True
    stage.open("a")
    statement = stage.submit("1")
    stage.next()[4].set_exception(Disconnected())
    assert code(statement) == SqlState.OUT_OF_MEMORY


def test_concurrent_statements_of_a_jvm_without_memory_run_again(stage: Stage) -> None:
    stage.no_memory = True
    stage.open("a", "b")
    statements = [stage.submit("1"), stage.submit("2")]
    for begun in (stage.next(), stage.next()):
        begun[4].set_exception(Disconnected())
        assert stage.closed.get(timeout=HANG_S)
    assert stage.pool.waiting == 2
    stage.pool.refuse(PgError(SqlState.ADMIN_SHUTDOWN, "enough"))
    assert {code(statement) for statement in statements} == {SqlState.ADMIN_SHUTDOWN}


def test_a_statement_does_not_fail_because_of_others_that_take_all_memory(stage: Stage) -> None:
    stage.no_memory = True
    innocent, cause = stage.submit("innocent"), stage.submit("cause")
    for number in range(rules.RUNS_MAX - 1):
        stage.open(f"a{number}", f"b{number}")
        ends = [stage.next()[4] for _ in range(2)]
        for end in ends:
            end.set_exception(Disconnected("the JVM has closed the connection"))
        while stage.pool.waiting < 2:
            time.sleep(0.001)
    later = stage.submit("later")
    stage.open("a", "b")
    for _ in range(2):  # each of the two runs alone, whichever is first
        _, sql, _, _, end = stage.next()
        assert stage.begun.empty()
        if sql == "innocent":
            end.set_result(ROWS)
        else:
            end.set_exception(Disconnected("the JVM has closed the connection"))
            assert code(cause) == SqlState.OUT_OF_MEMORY
            stage.open("c", "d")
    assert innocent.future.result(HANG_S) is ROWS
    _, sql, _, _, end = stage.next()
    assert sql == "later"
    end.set_result(ROWS)
    assert later.future.result(HANG_S) is ROWS


NO_MEMORY = Failure((Fault("java.lang.OutOfMemoryError", "Java heap space"),), "")


def test_a_statement_is_repeated_if_it_had_no_memory_while_an_older_one_ran(stage: Stage) -> None:
    stage.open("a", "b")
    cause = stage.submit("cause")
    *_, cause_end = stage.next()
    innocent = stage.submit("innocent")
    for _ in range(rules.RUNS_MAX - 1):
        stage.next()[4].set_exception(NO_MEMORY)
    while stage.pool.running > 1:
        time.sleep(0.001)
    assert stage.begun.empty()  # the last run waits until it is alone
    cause_end.set_exception(NO_MEMORY)
    assert code(cause) == SqlState.OUT_OF_MEMORY
    _, sql, *_, end = stage.next()
    assert sql == "innocent"
    end.set_exception(NO_MEMORY)
    assert code(innocent) == SqlState.OUT_OF_MEMORY


def test_a_statement_is_repeated_if_an_older_one_has_exhausted_the_memory_before(stage: Stage) -> None:
    stage.open("a", "b")
    cause, innocent = stage.submit("cause"), stage.submit("innocent")
    ends = {sql: end for _, sql, *_, end in (stage.next(), stage.next())}
    ends["cause"].set_exception(NO_MEMORY)
    assert code(cause) == SqlState.OUT_OF_MEMORY
    ends["innocent"].set_exception(NO_MEMORY)
    stage.next()[4].set_result(ROWS)
    assert innocent.future.result(HANG_S) is ROWS


def test_the_oldest_statement_fails_at_once_if_it_has_no_memory(stage: Stage) -> None:
    stage.open("a", "b")
    statement = stage.submit("1")
    *_, end = stage.next()
    younger = stage.submit("younger")
    *_, younger_end = stage.next()
    end.set_exception(NO_MEMORY)
    assert code(statement) == SqlState.OUT_OF_MEMORY
    cancelled = stage.submit("cancelled")
    *_, end = stage.next()
    stage.pool.cancel(cancelled)
    end.set_exception(NO_MEMORY)
    assert code(cancelled) == SqlState.QUERY_CANCELED
    younger_end.set_result(ROWS)
    assert younger.future.result(HANG_S) is ROWS


def test_others_wait_for_a_last_attempt_for_a_limited_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    last = stage.submit("last")
    for number in range(rules.RUNS_MAX - 1):
        stage.open(f"slot-{number}")
        stage.next()[4].set_exception(Disconnected())
    while not stage.pool.waiting:
        time.sleep(0.001)
    monkeypatch.setattr(rules, "ALONE_S", 0.2)
    stage.open("a", "b")
    *_, last_end = stage.next()
    stage.submit("other")
    _, sql, *_, end = stage.next()
    assert sql == "other"
    for each in (end, last_end):
        each.set_result(ROWS)
    assert last.future.result(HANG_S) is ROWS


def test_a_last_attempt_waits_for_others_for_a_limited_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.open("a", "b")
    endless = stage.submit("endless")
    *_, endless_end = stage.next()
    monkeypatch.setattr(rules, "ALONE_S", 0.2)
    last = stage.submit("last")
    for _ in range(rules.RUNS_MAX - 1):
        stage.next()[4].set_exception(NO_MEMORY)
    _, sql, *_, end = stage.next()
    assert sql == "last"
    for each in (end, endless_end):
        each.set_result(ROWS)
    assert (last.future.result(HANG_S), endless.future.result(HANG_S)) == (ROWS, ROWS)


def test_statements_no_longer_wait_for_a_last_attempt_that_was_cancelled(stage: Stage) -> None:
    stage.open("a", "b")
    other = stage.submit("other")
    *_, end = stage.next()
    last = stage.submit("last")
    for _ in range(rules.RUNS_MAX - 1):
        stage.next()[4].set_exception(NO_MEMORY)
    while not stage.pool.waiting:
        time.sleep(0.001)
    later = stage.submit("later")
    assert (stage.pool.waiting, stage.pool.running) == (2, 1)
    stage.pool.cancel(last)
    assert stage.next()[1] == "later"
    assert stage.pool.running == 2
    end.set_result(ROWS)
    assert other.future.result(HANG_S) is ROWS
    stage.pool.cancel(later)


def test_a_cancelled_statement_does_not_run_again(stage: Stage) -> None:
    stage.open("a")
    statement = stage.submit("1")
    end = stage.next()[4]
    stage.pool.cancel(statement)
    end.set_exception(Disconnected())
    assert stage.closed.get(timeout=HANG_S)
    assert stage.pool.waiting == 0


def test_statements_are_refused_until_the_pool_is_opened_again(stage: Stage) -> None:
    refusal = PgError(SqlState.CANNOT_CONNECT_NOW, "not now")
    waiting = stage.submit("1")
    stage.pool.refuse(refusal)
    assert code(waiting) == SqlState.CANNOT_CONNECT_NOW
    with pytest.raises(PgError, match="not now"):
        stage.submit("2")
    stage.open("a")
    assert stage.run("3", {})[0] == "a"


def test_a_patient_statement_waits_until_the_pool_ends(stage: Stage) -> None:
    waiting, hasty = stage.submit("1", patient=True), stage.submit("2")
    stage.pool.refuse(PgError(SqlState.CANNOT_CONNECT_NOW, "not now"))
    assert code(hasty) == SqlState.CANNOT_CONNECT_NOW
    later = stage.submit("3", patient=True)
    assert stage.pool.waiting == 2
    stage.open("a")
    for statement in (waiting, later):
        stage.next()[4].set_result(ROWS)
        assert statement.future.result(HANG_S) is ROWS
    stage.pool.shut()
    last = stage.submit("4", patient=True)
    stage.pool.end(PgError(SqlState.ADMIN_SHUTDOWN, "enough"))
    assert code(last) == SqlState.ADMIN_SHUTDOWN
    stage.pool.refuse(PgError(SqlState.CANNOT_CONNECT_NOW, "not now"))
    with pytest.raises(PgError, match="enough"):
        stage.submit("5", patient=True)


def test_a_patient_statement_survives_a_driver_without_successor(stage: Stage) -> None:
    stage.open("a")
    patient = stage.submit("1", patient=True)
    end = stage.next()[4]
    stage.pool.refuse(PgError(SqlState.CANNOT_CONNECT_NOW, "not now"))
    end.set_exception(Disconnected())
    assert stage.closed.get(timeout=HANG_S)
    stage.open("b")
    stage.next()[4].set_result(ROWS)
    assert patient.future.result(HANG_S) is ROWS


def test_an_unexpected_exception_reaches_the_caller_and_frees_the_slot(stage: Stage) -> None:
    stage.open("a")
    statement = stage.submit("1")
    stage.next()[4].set_exception(TypeError("Spark has no type for this"))
    with pytest.raises(TypeError, match="no type"):
        statement.future.result(HANG_S)
    assert stage.run("2", {})[0] == "a"


def test_statements_of_many_threads(stage: Stage) -> None:
    """Statements are submitted by many threads, and each gets its own answer."""
    stage.open("a", "b", "c")
    stopping = threading.Event()

    def answer() -> None:
        while not stopping.is_set():
            begun = stage.next()
            begun[4].set_result(pa.table({"c0": [int(begun[1])]}))

    answerer = threading.Thread(target=answer, daemon=True)
    answerer.start()
    received: dict[int, int] = {}

    def ask(number: int) -> Callable[[], None]:
        def work() -> None:
            for turn in range(20):
                rows = stage.submit(str(number * 100 + turn)).future.result(HANG_S)
                received[number * 100 + turn] = rows["c0"][0].as_py()

        return work

    threads = [threading.Thread(target=ask(number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    stopping.set()
    stage.submit("0").future.result(HANG_S)  # wakes the answering thread, which then ends
    answerer.join(HANG_S)
    assert received == {number: number for number in received}
    assert len(received) == 160
