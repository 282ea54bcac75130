"""Random faults: no acknowledged write is lost, no update is repeated, and no guarantee about times is broken."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.world import World

pytestmark = pytest.mark.faults

SECONDS = float(os.environ.get("FAULTS_SECONDS", "120"))


@pytest.mark.timeout(SECONDS + 600)
def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
    with World(tmp_path, seed, spark=os.environ.get("FAULTS_SPARK") != "none") as world:
        world.live(SECONDS)
        report = world.end()
    print(f"\n{report}")
    assert not report.violations, "\n".join([str(report), *map(str, report.violations[:20])])
