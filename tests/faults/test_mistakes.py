"""Runs with faulty servers. Each fault must be detected, which shows that the tests can fail."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.mistakes import MISTAKES
from tests.faults.world import World

pytestmark = [pytest.mark.faults, pytest.mark.long]

TRIES = 4
SECONDS = 8.0


@pytest.mark.timeout(TRIES * 120)
@pytest.mark.parametrize("name", [name for name in MISTAKES if "power" not in MISTAKES[name].needs])
def test_mistakes_are_detected(name: str, tmp_path: Path) -> None:
    needs = MISTAKES[name].needs
    seeds = []
    for attempt in range(TRIES):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        seeds.append(random.randrange(2**32))
        given = {"spark": "spark" in needs, "holds": "holds" in needs}
        with World(directory, seeds[-1], mistake=name, patience_s=20.0, **given) as world:
            world.live(SECONDS)
            report = world.end()
        if report.violations:
            print(f"\n{name}: found with seed {seeds[-1]}, try {attempt + 1}: {str(report.violations[0])[:200]}")
            return
    raise AssertionError(f"{name} was not found, seeds {seeds}")
