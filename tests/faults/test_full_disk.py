"""A full disk: writes are refused, acknowledged ones are kept, and with free space everything continues by itself.

There are two kinds of full disk. A small filesystem needs the right to mount one. A limit on the size of the server's
files works on any system; the server then also fails in the middle of a file. Both kinds are also tested at the start.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.world import Unstartable, World
from tests.small_disk import small_disk

pytestmark = pytest.mark.faults

ROUNDS = 4
DISK_BYTES = 48 * 1024 * 1024


class SmallDisk:
    """A filesystem of its own. `fill` leaves `room` bytes free."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, world: World, room: int) -> None:
        with self._ballast.open("wb") as file:
            while (free := os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize) > room:
                try:
                    file.write(bytes(min(free - room, 65_536)))
                    file.flush()
                except OSError:
                    break

    def free(self, world: World) -> None:
        self._ballast.unlink()


class Limit:
    """A limit on the size of the server's files: the current size of the WAL."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, world: World, room: int) -> None:
        # A server that is starting writes files before the limit is set; it has no limit at first.
        wal = self.path / "data" / "catalog.sqlite-wal"
        size = wal.stat().st_size if wal.exists() else 0
        resource.prlimit(world.pid, resource.RLIMIT_FSIZE, (min(size, room), resource.RLIM_INFINITY))

    def free(self, world: World) -> None:
        if world.pid:
            resource.prlimit(world.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def disk_of_kind(kind: str, path: Path) -> Iterator[SmallDisk | Limit]:
    if kind == "limit":
        path.mkdir()
        yield Limit(path)
        return
    with small_disk(path, DISK_BYTES):
        yield SmallDisk(path)


def refused_start(world: World) -> bool:
    """Whether the full disk prevented the server's start. The server must then report what to do."""
    try:
        world.start()
    except Unstartable as refused:
        said = str(refused)
        if "HINT" not in said or "Traceback" in said:
            raise
        return True
    return False


@pytest.mark.parametrize("kind", ["file system", "limit"])
def test_a_full_disk_refuses_writes_and_loses_nothing(kind: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    starts_refused = 0
    with (
        disk_of_kind(kind, tmp_path / "disk") as disk,
        World(tmp_path, seed, spark=False, disk=disk.path, patience_s=30.0) as world,
    ):
        for number in range(ROUNDS):
            time.sleep(dice.uniform(0.5, 1.5))  # for the work between the faults
            disk.fill(world, dice.choice([0, 0, 4_096, 100_000]))
            world.await_refusals()
            if number % 2 and kind == "file system":
                world.kill()
                starts_refused += refused_start(world)
            disk.free(world)
            if not world.pid:
                world.start()
            world.await_writes()
        report = world.end()
    print(f"\n{kind}, filled {ROUNDS} times, {starts_refused} starts refused: {report}")
    assert not report.violations, "\n".join([str(report), *map(str, report.violations[:20])])
    assert report.counts["refused"] >= ROUNDS
