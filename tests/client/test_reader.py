"""`Reader` has no IO: wherever the stream breaks, it returns the history as whole timestamps, each once."""

from __future__ import annotations

from decimal import Decimal
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.streams import History, columns, histories
from tidewire import (
    BrokenPromise,
    Change,
    KeyChange,
    KeyViolation,
    Progress,
    Query,
    Reader,
    Snapshot,
    Token,
    Update,
    WrongToken,
)

NAMES = ("mz_timestamp", "mz_progressed", "mz_diff", "k", "v")
QUERIES = (
    Query("t"),
    Query("t", key=("k",)),
    Query("t", key=("k",), envelope="upsert"),
    Query("t", key=("k",), envelope="debezium"),
)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """(rows until the connection breaks, batches until the process ends, whether it then ends). The last one is
    endless."""
    return draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.booleans()), max_size=8))


@given(history=histories(), query=st.sampled_from(QUERIES), now=st.integers(0, 12), lives=lives(), reset=st.booleans())
def test_interrupted_anywhere_the_history_is_returned_once(
    history: History, query: Query, now: int, lives: list[tuple[int, int, bool]], reset: bool
) -> None:
    reader = Reader(query)
    received: list[Snapshot | Update | Progress] = []
    rows: dict[Any, Any] | None = None  # as a process would keep it, with the token, over its own death
    for rows_max, batches_max, ends in [*lives, (10**6, 10**6, False)]:
        statement = reader.statement()
        stream = islice(history.stream(statement, min(now + len(received), history.end - 1)), rows_max)
        reader.describe(columns(statement))
        left = batches_max
        for row in stream:
            reader.receive(row)
            while left and (batch := reader.next_batch()) is not None:
                left -= ends  # without an end of the process, all available batches are returned
                received.append(batch)
                if query.key and not isinstance(batch, Progress):
                    rows = dict(batch.rows)
                    assert rows == {(k,): (v,) for k, v in history.at(batch.time).items()}
            if not left:
                break
        if ends:
            token = None if reader.token is None else Token.parse(str(reader.token))
            reader = Reader(query, token, rows)

    first, *others = received
    assert isinstance(first, Snapshot)
    assert not first.reset
    assert rows_received(first) == sorted(history.at(first.time).items())
    updates = [batch for batch in others if isinstance(batch, Update)]
    expected = [t for t in range(first.time + 1, history.end) if history.changes(t)]
    assert [batch.time for batch in updates] == expected
    for batch in updates:
        assert changes_received(batch, query) == changes_expected(history, batch.time, query)
    tokens = [batch.token.progress for batch in received]
    assert tokens == sorted(set(tokens))
    assert tokens[0] == first.time + 1
    assert tokens[-1] == history.end


def rows_received(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    if snapshot.key_changes:
        return sorted((*change.key, *(change.after or ())) for change in snapshot.key_changes)
    return sorted(change.row for change in snapshot.changes)


def changes_received(batch: Update, query: Query) -> list[Any]:
    return sorted(batch.key_changes if query.envelope else batch.changes, key=repr)


def changes_expected(history: History, time: int, query: Query) -> list[Any]:
    if query.envelope is None:
        return sorted((Change((k, v), diff) for k, v, diff in history.changes(time)), key=repr)
    before, after = history.at(time - 1), history.at(time)
    keys = {k for k, _, _ in history.changes(time)}
    if query.envelope == "upsert":
        received = [
            KeyChange("upsert" if k in after else "delete", (k,), None, (after[k],) if k in after else None)
            for k in keys
        ]
    else:
        received = [
            KeyChange(
                "delete" if k not in after else "upsert" if k in before else "insert",
                (k,),
                (before[k],) if k in before else None,
                (after[k],) if k in after else None,
            )
            for k in keys
        ]
    return sorted(received, key=repr)


def feed(reader: Reader, *rows: tuple[Any, ...], names: tuple[str, ...] = NAMES) -> list[Any]:
    """The batches that become available by the rows of the present stream."""
    reader.describe(names)
    for row in rows:
        reader.receive(row)
    batches = []
    while (batch := reader.next_batch()) is not None:
        batches.append(batch)
    return batches


def progress(time: int) -> tuple[Any, ...]:
    return time, True, None, None, None


def started(query: Query = QUERIES[0], *rows: tuple[Any, ...]) -> Reader:
    """A reader that has returned its snapshot at time 5."""
    reader = Reader(query)
    reader.statement()
    (snapshot,) = feed(reader, progress(5), *rows, progress(6))
    assert isinstance(snapshot, Snapshot)
    return reader


def test_the_first_progress_is_not_a_resume_point() -> None:
    reader = Reader(Query("t"))
    reader.statement()
    assert feed(reader, progress(5), (5, False, 1, 1, 1)) == []
    assert reader.token is None
    assert reader.statement() == "SUBSCRIBE t WITH (PROGRESS)"


def test_an_empty_snapshot_is_returned() -> None:
    reader = Reader(Query("t"))
    reader.statement()
    snapshot, on = feed(reader, progress(5), progress(9))
    assert (snapshot.time, snapshot.changes, snapshot.progress) == (5, [], 6)
    assert isinstance(on, Progress)
    assert on.progress == 9
    assert reader.statement() == "SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false) AS OF 8"


def test_the_first_progress_of_a_resumed_stream_is_not_returned_again() -> None:
    reader = started()
    reader.statement()
    assert feed(reader, progress(5), progress(6)) == []
    assert [batch.progress for batch in feed(reader, progress(7))] == [7]


def test_times_may_be_decimals() -> None:
    reader = Reader(Query("t"))
    reader.statement()
    feed(reader, (Decimal(5), True, None, None, None), (Decimal(5), False, 1, 1, 1))
    (snapshot, _) = feed(reader, (Decimal(7), True, None, None, None))
    assert snapshot.time == 5
    assert isinstance(snapshot.time, int)


def test_the_end_of_a_stream_completes_its_last_timestamp() -> None:
    reader = Reader(Query("(SELECT 1)"))
    reader.statement()
    top = 2**64 - 1
    assert feed(reader, progress(top), (top, False, 1, 1, 1)) == []
    reader.finish()
    (snapshot,) = feed(reader)
    assert snapshot.changes == [Change((1, 1), 1)]
    assert Token.parse(str(snapshot.token)).progress == 2**64
    assert reader.statement().endswith(f"AS OF {top}")


def test_the_token_of_a_finished_stream_is_up_to() -> None:
    reader = Reader(Query("t", as_of=5, up_to=8))
    assert reader.statement() == "SUBSCRIBE t WITH (PROGRESS) AS OF 5 UP TO 8"
    assert [batch.progress for batch in feed(reader, progress(5), (6, False, 1, 1, 1))] == [6]
    reader.finish()
    assert [batch.progress for batch in feed(reader)] == [7, 8]


def test_an_empty_range_has_no_snapshot() -> None:
    reader = Reader(Query("t", as_of=5, up_to=5))
    reader.statement()
    reader.finish()
    assert reader.next_batch() is None
    reader.receive(progress(5))
    reader.finish()
    assert reader.next_batch() is None


def test_a_timestamp_is_complete_when_a_later_one_begins() -> None:
    reader = started()
    reader.statement()
    reader.receive(progress(5))
    received = []
    for time in range(6, 100):
        for value in range(3):
            moved = reader.receive((time, False, 1, value, time))
            batch = reader.next_batch()
            assert reader.next_batch() is None
            assert (batch is not None) == (value == 0 and time > 6)
            assert moved == (value == 0)
            if batch is not None:
                received.append(batch)
    assert [update.time for update in received] == list(range(6, 99))
    assert all(len(update.changes) == 3 and update.progress == update.time + 1 for update in received)
    assert reader.statement().endswith("AS OF 98"), "the rows at 99 were not all of that time"


def test_a_later_row_completes_a_snapshot_even_if_it_is_empty() -> None:
    reader = Reader(QUERIES[0])
    reader.statement()
    snapshot, _ = feed(reader, progress(5), (5, False, 1, 1, 1), (8, False, 1, 2, 2), progress(9))
    assert [change.row for change in snapshot.changes] == [(1, 1)]
    reader = Reader(QUERIES[0])
    reader.statement()
    reader.describe(NAMES)
    reader.receive(progress(5))
    assert reader.next_batch() is None
    reader.receive((8, False, 1, 2, 2))
    snapshot = reader.next_batch()
    assert (type(snapshot), snapshot.changes, snapshot.progress) == (Snapshot, [], 6)
    assert reader.next_batch() is None


def test_a_reset_snapshot_is_marked_and_replaces_the_rows() -> None:
    reader = started(QUERIES[1], (5, False, 1, 1, 1), (5, False, 1, 2, 2))
    reader.reset()
    assert reader.statement() == "SUBSCRIBE t WITH (PROGRESS)"
    reader.receive(progress(50))
    reader.statement()  # the connection broke again
    snapshot, on = feed(reader, progress(60), (60, False, 1, 2, 9), progress(70))
    assert snapshot.reset
    assert snapshot.rows == {(2,): (9,)}
    assert (snapshot.progress, on.progress) == (61, 70)


def test_a_reset_drops_the_requested_as_of() -> None:
    reader = Reader(Query("t", as_of=5))
    reader.reset()
    assert reader.statement() == "SUBSCRIBE t WITH (PROGRESS)"
    snapshot, _ = feed(reader, progress(60), progress(70))
    assert not snapshot.reset, "nothing was handed over before it"


@pytest.mark.parametrize(
    "rows",
    [
        ((6, False, 1, 1, 1), progress(7)),
        (progress(6),),
        (progress(4),),
        (progress(5), (5, False, 1, 1, 1)),
        (progress(5), progress(9), (8, False, 1, 1, 1)),
        (progress(5), progress(9), progress(8)),
        (progress(5), (8, False, 1, 1, 1), (7, False, 1, 1, 1)),
    ],
)
def test_a_stream_with_contradictory_times_is_refused(rows: tuple[tuple[Any, ...], ...]) -> None:
    reader = started()
    reader.statement()
    with pytest.raises(BrokenPromise):
        feed(reader, *rows)


def test_a_key_violation_leaves_rows_and_token_unchanged() -> None:
    reader = started(QUERIES[1], (5, False, 1, 1, 1))
    reader.receive((7, False, 1, 2, 2))
    reader.receive((7, False, 1, 1, 7))
    reader.receive(progress(8))
    for _ in range(2):
        with pytest.raises(KeyViolation, match=r"\(1,\) at 7"):
            reader.next_batch()
    assert reader.token is not None
    assert reader.token.progress == 6


@pytest.mark.parametrize("rows", [((5, False, 2, 1, 1),), ((5, False, 1, 1, 1), (5, False, 1, 1, 2))])
def test_a_snapshot_may_violate_the_key(rows: tuple[tuple[Any, ...], ...]) -> None:
    reader = Reader(QUERIES[1])
    reader.statement()
    with pytest.raises(KeyViolation):
        feed(reader, progress(5), *rows, progress(6))


def test_deleting_a_missing_key_is_an_error() -> None:
    reader = started(QUERIES[1])
    with pytest.raises(BrokenPromise, match="retraction"):
        feed(reader, (7, False, -1, 1, 1), progress(8))


def test_nan_values_can_be_replaced() -> None:
    nan = float("nan")
    reader = started(QUERIES[1], (5, False, 1, 1, nan))
    (update, _) = feed(reader, (7, False, -1, 1, float("nan")), (7, False, 1, 1, 2.0), progress(9))
    assert update.rows == {(1,): (2.0,)}


def test_an_envelope_reports_a_key_violation() -> None:
    reader = started(QUERIES[2], (5, False, "upsert", 1, 1), (5, False, "upsert", 2, None))
    (update, _) = feed(reader, (7, False, "key_violation", 1, None), (7, False, "delete", 3, None), progress(9))
    assert update.key_changes == [KeyChange("key_violation", (1,), None, None), KeyChange("delete", (3,), None, None)]
    assert update.rows == {(2,): (None,)}


def test_all_columns_may_be_keys() -> None:
    reader = Reader(Query("t", key=("v", "k"), envelope="upsert"))
    reader.statement()
    names = ("mz_timestamp", "mz_progressed", "mz_state", "v", "k")
    snapshot, _ = feed(reader, progress(5), (5, False, "upsert", 1, 2), progress(9), names=names)
    assert snapshot.rows == {(1, 2): ()}
    assert snapshot.columns == ("v", "k")


def test_columns_have_the_names_of_the_rows_values() -> None:
    reader = Reader(Query("t", key=("v",)))
    reader.statement()
    snapshot, _ = feed(reader, progress(5), (5, False, 1, "a", "b"), progress(9))
    assert snapshot.columns == ("k", "v")
    assert snapshot.rows == {("b",): ("a",)}
    reader = Reader(Query("t", key=("k",), envelope="debezium"))
    reader.describe(("mz_timestamp", "mz_progressed", "mz_state", "k", "before_after_v", "after_after_v"))
    reader.statement()
    snapshot, _ = feed(reader, progress(5), progress(9), names=columns("DEBEZIUM"))
    assert snapshot.columns == ("k", "v")


@pytest.mark.parametrize("names", [("k", "w"), ("v", "v")])
def test_a_key_column_must_exist_once(names: tuple[str, ...]) -> None:
    reader = Reader(Query("t", key=("v",)))
    with pytest.raises(ValueError, match='"v"'):
        reader.describe(("mz_timestamp", "mz_progressed", "mz_diff", *names))


def test_rows_exist_only_with_a_key_and_are_read_only() -> None:
    reader = Reader(Query("t"))
    reader.statement()
    snapshot, _ = feed(reader, progress(5), progress(9))
    with pytest.raises(TypeError, match="key"):
        _ = snapshot.rows
    reader = Reader(QUERIES[1])
    reader.statement()
    snapshot, _ = feed(reader, progress(5), progress(9))
    with pytest.raises(TypeError):
        snapshot.rows[1,] = 2


def test_a_token_belongs_to_its_query() -> None:
    token = Token(Query("t").fingerprint, 7)
    assert Reader(Query(" t ;"), token).statement() == "SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false) AS OF 6"
    for other in (Query("u"), Query("t", key=("k",)), Query("t", key=("k",), envelope="upsert")):
        with pytest.raises(WrongToken):
            Reader(other, token, {} if other.key else None)
    with pytest.raises(ValueError, match="rows"):
        Reader(Query("t", key=("k",)), Token(Query("t", key=("k",)).fingerprint, 7))


@pytest.mark.parametrize("text", ["", "7", "tw1:abc:7", "tw2:0123456789abcdef:7", "tw1:0123456789abcdef:-7"])
def test_malformed_tokens_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a token"):
        Token.parse(text)


def test_queries_become_subscribe_statements() -> None:
    now = lambda query: query.statement(None, snapshot=True)
    assert now(Query('db."s p".t')) == 'SUBSCRIBE db."s p".t WITH (PROGRESS)'
    assert now(Query("SELECT 1 -- one;\n;")) == "SUBSCRIBE (SELECT 1 -- one;\n) WITH (PROGRESS)"
    assert now(Query("t", key=("k", 'a"b'), envelope="upsert")) == (
        'SUBSCRIBE t ENVELOPE UPSERT (KEY ("k", "a""b")) WITH (PROGRESS)'
    )
    assert now(Query("t", order_by="k, mz_diff")) == "SUBSCRIBE t WITHIN TIMESTAMP ORDER BY k, mz_diff WITH (PROGRESS)"
    with pytest.raises(ValueError, match="alone"):
        Query("subscribe t")
    with pytest.raises(ValueError, match="needs a key"):
        Query("t", envelope="upsert")
