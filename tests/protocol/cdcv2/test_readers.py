"""Readers return a history as an oracle decides by definition, as early as the received statements allow."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cdcv2 import open_updates
from protocol.cdcv2.messages import DIFF_FIELD, END, TIME, TIME_FIELD, MessageError, Progress
from protocol.cdcv2.orders import Product, Total
from protocol.cdcv2.partial_reader import PartialReader, Statement, Update
from protocol.cdcv2.reader import Batch, Incomplete, Reader
from protocol.cdcv2.writer import Writer
from tests.examples import examples
from tests.protocol.cdcv2.histories import Oracle, cut, grid, mangled, random_updates, statement

SCHEMA = pa.schema([("c0", pa.string()), TIME_FIELD, DIFF_FIELD])
TIMES = 10
SEEDS = st.integers(0, 2**32)


def table(*updates: Update[str, int]) -> pa.Table:
    columns = zip(*updates, strict=True) if updates else ([], [], [])
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def progress(of: Statement[int]) -> Progress:
    return Progress.of(of.lower, of.upper, list(of.counts.items()))


def says(lower: list[int], upper: list[int], **counts: int) -> Progress:
    """`says([0], [3], t1=2)`: two updates at time 1."""
    return Progress.of(lower, upper, [(int(time[1:]), count) for time, count in counts.items()])


def rows(batch: Batch | None) -> list[Update[str, int]]:
    assert batch is not None
    return [tuple(row.values()) for row in batch.updates.to_pylist()]


# -- against the oracle -----------------------------------------------------------------------------------------------


@given(SEEDS)
@examples(400)
def test_the_reader_returns_what_the_oracle_decides(seed: int) -> None:
    random = Random(seed)
    order, times = Total(), range(TIMES)
    updates = random_updates(random, times, random.randrange(30))
    statements = [each for _ in range(random.randint(1, 3)) for each in cut(random, order, updates, times)]
    oracle = Oracle(order, range(TIMES + 1))
    reader = Reader(SCHEMA)
    plain: PartialReader[str, int] = PartialReader(order, 0)
    returned: set[Update[str, int]] = set()
    for arrival, (some, others) in enumerate(mangled(random, updates, statements)):
        oracle.receive(some, others)
        before = reader.frontier
        batch = reader.receive(table(*some), [progress(each) for each in others], arrival)
        plainly = plain.receive(some, others)
        assert (batch is None) == (plainly is None)
        if batch is not None:
            found = rows(batch)
            assert len(set(found)) == len(found)
            assert all(before <= time < batch.frontier for _, time, _ in found)
            assert [time for _, time, _ in found] == sorted(time for _, time, _ in found)
            assert (set(found), batch.frontier) == (plainly[0], min(plainly[1], default=END))
            returned |= set(found)
        assert {reader.frontier} == (oracle.frontier() or {END})
        assert returned == oracle.closed()
    assert reader.open_updates == len(oracle.updates - returned)


@given(SEEDS, st.integers(2, 3))
@examples(150)
def test_the_reader_of_partially_ordered_times_returns_what_the_oracle_decides(seed: int, dimensions: int) -> None:
    random = Random(seed)
    size = 4 if dimensions == 2 else 3
    order, times = Product(), grid(size, dimensions)
    updates = random_updates(random, times, random.randrange(20))
    statements = [each for _ in range(random.randint(1, 3)) for each in cut(random, order, updates, times)]
    oracle = Oracle(order, grid(size + 1, dimensions))
    reader: PartialReader[str, tuple[int, ...]] = PartialReader(order, times[0])
    returned: set[Any] = set()
    for some, others in mangled(random, updates, statements):
        oracle.receive(some, others)
        found = reader.receive(some, others)
        if found is not None:
            assert not returned & found[0]
            returned |= found[0]
        assert set(reader.frontier) == oracle.frontier()
        assert returned == oracle.closed()


@given(SEEDS)
@examples(100)
def test_a_planted_fault_stalls_the_reader_before_its_time(seed: int) -> None:
    """A dropped update, or a count that one or all writers got wrong."""
    random = Random(seed)
    order, times = Total(), range(TIMES)
    updates = random_updates(random, times, 20)
    fault = random.choice(sorted(updates))
    time = fault[1]
    statements = [statement(order, updates, (0,), ()), *cut(random, order, updates, times)]
    kept = set(updates)
    if random.random() < 0.5:
        kept.discard(fault)
    else:
        change = random.choice([-1, 1, 5])
        statements = [
            Statement(s.lower, s.upper, {t: max(c + change, 0) if t == time else c for t, c in s.counts.items()})
            for s in statements
        ]
    reader = Reader(SCHEMA)
    messages = list(kept)
    random.shuffle(messages)
    reader.receive(table(*messages))  # too small a count is wrong only once more updates have arrived
    for _ in range(3):
        random.shuffle(statements)
        reader.receive(table(*messages), [progress(each) for each in statements])
        assert reader.frontier == time
    waiting = reader.waiting()
    assert [each.time for each in waiting.times] == [time]
    assert waiting.times[0].announced != waiting.times[0].received


@given(SEEDS)
@examples(100)
def test_a_reader_continues_at_a_frontier_with_what_arrived_since_the_oldest_that_was_held(seed: int) -> None:
    random = Random(seed)
    order, times = Total(), range(TIMES)
    updates = random_updates(random, times, 25)
    statements = [
        statement(order, updates, (0,), (4,)),
        statement(order, updates, (4,), ()),
        *cut(random, order, updates, times),
    ]
    calls = mangled(random, updates, statements)
    calls.append((sorted(updates), statements))
    reader, returned, oldest = Reader(SCHEMA), set[Update[str, int]](), 0
    for arrival, (some, others) in enumerate(calls):
        if random.random() < 0.3:
            reader = Reader(SCHEMA, reader.frontier)
            for again in range(oldest, arrival):
                assert reader.receive(table(*calls[again][0]), [progress(s) for s in calls[again][1]], again) is None
        batch = reader.receive(table(*some), [progress(each) for each in others], arrival)
        if batch is not None:
            assert returned.isdisjoint(rows(batch))
            returned |= set(rows(batch))
        found = reader.oldest()
        oldest = arrival + 1 if found is None else found
    assert (reader.frontier, returned) == (END, updates)


# -- known answers ----------------------------------------------------------------------------------------------------


def test_the_known_answers_of_materialize() -> None:
    """test/testdrive/avro-cdcv2.td of Materialize."""
    reader = Reader(SCHEMA)
    assert reader.receive(table(("a", 5, 1), ("b", 4, 1))) is None
    assert rows(reader.receive(None, [says([0], [3])])) == []
    found = reader.receive(None, [says([3], [10], t4=1, t5=1, t6=1)])
    assert rows(found) == [("b", 4, 1), ("a", 5, 1)]
    assert reader.frontier == 6
    found = reader.receive(table(("c", 6, 1)))
    assert rows(found) == [("c", 6, 1)]
    assert reader.frontier == 10
    assert reader.receive(table(("a", 5, 1), ("b", 4, 1)), [says([3], [6], t4=1, t5=1)]) is None
    assert reader.waiting().times == ()


def test_an_empty_upper_ends_the_history() -> None:
    reader = Reader(SCHEMA)
    assert reader.receive(None, [says([5], [])]) is None
    reader = Reader(SCHEMA)
    batch = reader.receive(table(("a", 2**63 - 1, 1)), [Progress.of([0], [], [(2**63 - 1, 1)])])
    assert rows(batch) == [("a", 2**63 - 1, 1)]
    assert reader.frontier == END
    assert reader.receive(table(("b", 3, 1)), [says([0], [7])]) is None


def test_duplicates_within_one_message_count_once() -> None:
    reader = Reader(SCHEMA)
    assert rows(reader.receive(table(*[("a", 1, 1)] * 50), [says([0], [2], t1=2)])) == []
    assert reader.frontier == 1
    assert reader.waiting().times == (Incomplete(1, 2, 1),)
    assert rows(reader.receive(table(("b", 1, 1), ("a", 1, 1)))) == [("a", 1, 1), ("b", 1, 1)]
    assert reader.duplicates == 50


def test_updates_with_different_diffs_are_different_updates() -> None:
    reader = Reader(SCHEMA)
    reader.receive(table(("a", 1, 1), ("a", 1, 2)))
    assert reader.receive(None, [says([0], [2], t1=1)]).frontier == 1  # type: ignore[union-attr]
    assert reader.waiting().times == (Incomplete(1, 1, 2),)


def test_statements_after_a_gap_wait_and_are_held_once() -> None:
    reader = Reader(SCHEMA)
    for _ in range(10):
        assert reader.receive(table(("a", 7, 1)), [says([5], [9], t7=1)]) is None
    assert (reader.open_updates, reader.open_statements) == (1, 1)
    waiting = reader.waiting()
    assert (waiting.uncovered, waiting.queued) == (0, 5)
    assert rows(reader.receive(None, [says([0], [6])])) == [("a", 7, 1)]
    assert (reader.open_updates, reader.open_statements, reader.oldest()) == (0, 0, None)


def test_statements_that_disagree_stall_the_reader() -> None:
    reader = Reader(SCHEMA)
    reader.receive(None, [says([0], [9], t4=1, t6=1)])
    reader.receive(None, [says([2], [9], t4=1, t6=2)])
    batch = reader.receive(table(("a", 4, 1), ("b", 6, 1)))
    assert rows(batch) == [("a", 4, 1)]
    assert reader.frontier == 6
    assert reader.waiting().contradiction == 6
    reader.receive(table(("c", 6, 1)))
    assert reader.frontier == 6


def test_null_and_nan_are_equal_to_themselves() -> None:
    schema = pa.schema([("c0", pa.float64()), ("c1", pa.list_(pa.int32())), TIME_FIELD, DIFF_FIELD])
    nans = np.array([0x7FF8000000000001, 0x7FF8000000000000], np.uint64).view(np.float64)
    values = [*nans, None, None, 0.0, -0.0]
    updates = pa.table([pa.array(values, pa.float64(), from_pandas=False), [[1, None]] * 6, [1] * 6, [1] * 6], schema)
    reader = Reader(schema)
    reader.receive(updates)
    reader.receive(updates)
    assert reader.open_updates == 4


@given(SEEDS)
@examples(60)
def test_rows_with_equal_hashes_are_distinguished(seed: int) -> None:
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_updates, "key_hashes", _two_hashes)
        updates = list(random_updates(random, range(4), 30))
        reader = Reader(SCHEMA)
        for _ in range(4):
            random.shuffle(updates)
            reader.receive(table(*updates))
        assert reader.open_updates == len(updates)
        counts = {f"t{time}": sum(u[1] == time for u in updates) for time in range(4)}
        assert set(rows(reader.receive(None, [says([0], [9], **counts)]))) == set(updates)


def _two_hashes(rows: pa.Table, names: list[str]) -> Any:
    return rows[TIME].to_numpy().astype(np.uint64) % np.uint64(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1], [3], []), "progress names the time -1, which is not between 0 and"),
        (([0], [2**63], []), "progress names the time 9223372036854775808"),
        (([0], [3], [(1, -1)]), "progress has the count -1 for time 1"),
        (([0], [3], [(3, 1)]), r"progress has a count for a time that is not in \[0, 3\)"),
        (([2], [3], [(1, 1)]), r"not in \[2, 3\)"),
        (([5], [5], [(5, 1)]), r"not in \[5, 5\)"),
        (([10], [3], []), r"progress has the upper \[3\], which is before its lower \[10\]"),
        (([], [3], []), r"progress has the upper \[3\], which is before its lower \[\]"),
        (([0], [3], [(1, 1), (1, 2)]), "progress has two counts for time 1"),
    ],
)
def test_invalid_statements_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(MessageError, match=message):
        Progress.of(*arguments)


def test_empty_intervals_say_nothing() -> None:
    reader = Reader(SCHEMA)
    assert reader.receive(None, [says([0], [0]), says([4], [4]), says([], [])]) is None
    assert reader.open_statements == 0


def test_a_negative_time_changes_nothing() -> None:
    reader = Reader(SCHEMA)
    with pytest.raises(MessageError, match="update at time -1, which is negative"):
        reader.receive(table(("a", 1, 1), ("b", -1, 1)), [says([0], [9])])
    assert (reader.frontier, reader.open_updates) == (0, 0)


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [300_000, pytest.param(10_000_000, marks=pytest.mark.large)])
def test_memory_is_that_of_open_updates(count: int) -> None:
    """A long history. Each update arrives three times, and its statement up to three calls later."""
    step, window, per_time = 10_000, 20_000, 10
    reader, generator, returned = Reader(SCHEMA), np.random.default_rng(1), 0
    for start in range(0, count, step):
        numbers = np.arange(max(0, start - window), start + step)
        generator.shuffle(numbers)
        data = pa.array(numbers % 1_000).cast(pa.string())
        updates = pa.table([data, numbers // per_time, np.ones(len(numbers), np.int64)], SCHEMA)
        statements = []
        if (start + step) % (3 * step) == 0 or start + step == count:
            lower = max(reader.frontier, 0)
            times = np.arange(lower, (start + step) // per_time)
            statements = [Progress(lower, (start + step) // per_time, times, np.full(len(times), per_time))]
        batch = reader.receive(updates, statements, start)
        returned += 0 if batch is None else batch.updates.num_rows
        assert reader.open_updates <= 3 * step
        assert reader.open_statements <= 1
        assert reader.nbytes < 12 << 20
    assert returned == count


# -- the writer -------------------------------------------------------------------------------------------------------


@given(SEEDS)
@examples(100)
def test_readers_return_what_writers_wrote(seed: int) -> None:
    """Several writers with the same history and own cuts, one of which is replaced by one that begins again."""
    random = Random(seed)
    updates = sorted(random_updates(random, range(TIMES), 30))
    updates_sent: list[pa.Table] = []
    statements: list[Progress] = []
    for _ in range(random.randint(1, 3)):
        writer, begin = Writer(), 0
        while begin < TIMES:
            end = random.randint(begin + 1, TIMES)
            own = [update for update in updates if begin <= update[1] < end]
            for half in (own[::2], own[1::2]):
                writer.add(table(*half))
                updates_sent.append(table(*half))
            if random.random() < 0.3:
                writer = Writer(writer.frontier)  # stopped before its statement
                begin = writer.frontier
                continue
            found = writer.advance(end)
            assert found is not None
            statements.append(found)
            begin = end
        found = writer.finish()
        assert found is not None
        statements.append(found)
    random.shuffle(statements)
    reader = Reader(SCHEMA)
    found_rows = []
    for part in updates_sent:
        if (batch := reader.receive(part, [statements.pop()] if statements else [])) is not None:
            found_rows += rows(batch)
    if (batch := reader.receive(None, statements)) is not None:
        found_rows += rows(batch)
    assert sorted(found_rows) == updates
    assert reader.frontier == END


def test_the_writer_refuses_updates_before_its_frontier() -> None:
    writer = Writer(3)
    with pytest.raises(ValueError, match="update at time 2, which is before the frontier 3"):
        writer.add(table(("a", 2, 1)))
    assert writer.advance(3) is None
    statement = writer.advance(5)
    assert statement is not None
    assert (statement.lower, statement.upper, statement.times.tolist()) == (3, 5, [])


def test_the_number_of_missing_updates_is_limited() -> None:
    reader = Reader(SCHEMA)
    reader.receive(None, [says([0], [9], t1=2**62, t2=2**62 - 1)])
    assert reader.waiting().missing == 2**63 - 1
    reader.receive(None, [says([9], [10], t9=2**63 - 1)])
    assert reader.waiting().missing == 2**63 - 1
