"""The running totals of DISTINCT over sorted changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.dataflow.operators.distinct import by_row_and_version
from tests.examples import examples

NUMBERS = st.integers(0, 3) | st.sampled_from([1 << 40, (1 << 62) - 1])  # the largest are sorted in another way


@examples(50)
@given(st.lists(st.tuples(NUMBERS, st.integers(0, 256)), min_size=1))
def test_changes_are_sorted_by_row_and_version(changes: list[tuple[int, int]]) -> None:
    numbers, versions = (np.array(values, np.int64) for values in zip(*changes, strict=True))
    places = by_row_and_version(numbers, versions)
    assert sorted(places.tolist()) == list(range(len(changes)))
    assert list(zip(numbers[places].tolist(), versions[places].tolist(), strict=True)) == sorted(changes)
