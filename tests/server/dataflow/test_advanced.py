"""The steps of a lagging dataflow: how many times each of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.ids import Timestamp
from server.dataflow.operators.step_cost import TooMuch
from server.dataflow.runtime.computation import Computation, Present, StepDurations, advanced

TIMES = [Timestamp(time) for time in range(100, 116)]


class Steps:
    """A computation that refuses steps of more than `most` times, and all steps that contain `faulty`."""

    def __init__(self, most: int, faulty: int | None = None) -> None:
        self.most, self.faulty = most, faulty
        self.sizes: list[int] = []

    async def advance(self, times: Sequence[Timestamp], present: Present | None = None) -> list[pa.Table]:
        self.sizes.append(len(times))
        if len(times) > self.most:
            raise TooMuch
        if self.faulty in times:
            raise ValueError
        return [pa.table({"c0": [time]}) for time in times]


async def present() -> Any:
    raise AssertionError("the steps do not compute all rows")


async def steps_of(steps: Steps) -> list[tuple[Timestamp, object]]:
    found: list[tuple[Timestamp, object]] = []
    while left := TIMES[len(found) :]:
        async for times, changes in advanced(cast(Computation, steps), left, present, StepDurations()):
            if isinstance(changes, Exception):
                found += [(time, type(changes)) for time in times]
            else:
                found += zip(times, [table["c0"][0].as_py() for table in changes], strict=True)
    return found


@pytest.mark.parametrize(("most", "sizes"), [(16, [16]), (8, [16, 8, 8]), (3, [16, 8, 4, 2, *[4, 2] * 6, 2])])
async def test_a_step_of_too_many_times_is_halved_and_later_ones_grow_again(most: int, sizes: list[int]) -> None:
    steps = Steps(most)
    assert await steps_of(steps) == [(time, time) for time in TIMES]
    assert steps.sizes == sizes


async def test_the_times_are_chosen_again_after_a_single_one() -> None:
    steps = Steps(1)
    await steps_of(steps)
    assert steps.sizes[:7] == [16, 8, 4, 2, 1, 15, 7]


async def test_only_the_faulty_time_has_an_error() -> None:
    assert await steps_of(Steps(16, faulty=105)) == [(time, ValueError if time == 105 else time) for time in TIMES]
