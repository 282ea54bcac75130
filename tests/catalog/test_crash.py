"""kill -9 at random times: acknowledged commits are present once, others are present completely or not at all."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catalog.log import Log
from catalog.payloads import Payloads
from catalog.store import Store
from tests.catalog.crash_child import END_OF_TIME, SCHEMA, T

KILLS = 4


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.slow
def test_no_acknowledged_commit_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    on_disk, latest = 0, -1
    for kill in range(KILLS):
        acknowledged = killed_writer(tmp_path, seed * 100 + kill, moments)
        for number, at in acknowledged:
            assert number == on_disk + 1
            assert at > latest, "a timestamp was given twice, or went back"
            on_disk, latest = number, at
        store = Store(tmp_path)
        payloads = Payloads(tmp_path / "payloads")
        log = Log(store, payloads)
        numbers = sorted(log.rows(T, END_OF_TIME, SCHEMA)["c0"].to_pylist())
        assert numbers == list(range(1, len(numbers) + 1)), "lost or doubled"
        assert len(numbers) in (on_disk, on_disk + 1), "at most one was under way"
        assert store.read("PRAGMA integrity_check") == [("ok",)]
        assert payloads.names() == {batch.file for batch in log.batches(T)} - {None}, "orphans are swept"
        on_disk = len(numbers)
        store.close()
    assert on_disk > KILLS


def killed_writer(directory: Path, seed: int, moments: random.Random) -> list[tuple[int, int]]:
    """The numbers and times that were acknowledged before the writer was killed, after a random number of commits."""
    command = [sys.executable, "-m", "tests.catalog.crash_child", str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        lines = [writer.stdout.readline() for _ in range(moments.randrange(25))]
        moment = time.perf_counter() + moments.random() * 0.01
        while time.perf_counter() < moment:
            pass
        writer.kill()
        lines += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [(int(number), int(at)) for number, at in (line.split() for line in lines if line.endswith("\n"))]
