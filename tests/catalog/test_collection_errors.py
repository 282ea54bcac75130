"""The errors of collections by time, stored and compacted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from catalog.collection_errors import CollectionError, CollectionErrors
from catalog.ids import ObjectId, Timestamp
from catalog.store import Store
from tests.examples import examples

ID = ObjectId("u10")
A, B = (CollectionError(message, "detail", "hint") for message in "ab")


def add(store: Store, errors: CollectionErrors, time: int, error: CollectionError | None) -> None:
    store.transact(lambda tx: errors.save(tx, ID, Timestamp(time), error))
    errors.committed(ID, Timestamp(time), error)


def test_an_error_lasts_until_the_next_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    errors = CollectionErrors(store)
    assert not errors
    for time, error in ((10, A), (20, B), (30, None)):
        add(store, errors, time, error)
    assert [errors.at(ID, time) for time in (9, 10, 19, 20, 29, 30, 99)] == [None, A, A, B, B, None, None]
    assert errors.times(ID, 10, 30) == [10, 20]
    assert errors.latest(ID) is None
    store.transact(lambda tx: errors.drop(tx, [ID]))
    errors.dropped(ID)
    assert not errors
    assert not CollectionErrors(store)
    store.close()


@examples(100)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([A, B, None])), max_size=8), st.integers(0, 20))
def test_compaction_changes_no_readable_time(entries: list[tuple[int, CollectionError | None]], since: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        errors = CollectionErrors(store)
        time = 0
        for after, error in entries:
            time += after
            add(store, errors, time, error)
        readable = range(since, 30)
        before = [errors.at(ID, time) for time in readable]
        store.transact(lambda tx: errors.compact(tx, ID, Timestamp(since)))
        errors.compacted(ID, Timestamp(since))
        stored = CollectionErrors(store)
        for found in (errors, stored):
            assert [found.at(ID, time) for time in readable] == before
            assert not found.is_compactable(ID, since)
        if set(before) == {None}:
            assert not errors
        store.close()
