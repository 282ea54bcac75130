"""Power failure: every state that the disk may then have contains what was acknowledged before.

A server with clients runs under strace. Its writes and syncs are replayed on the model of a disk. Power fails at many
points of the replay, and the catalog and the log are opened from the resulting states.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from catalog import holds, persistence, sequence_state
from catalog.log import Log
from catalog.objects.holds import Hold
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.payloads import Payloads
from catalog.store import Store, StoreError
from server.coordinator.snapshot_cache import collection_schema
from tests.faults.disk import Disk
from tests.faults.history import Violation, violations
from tests.faults.mistakes import MISTAKES
from tests.faults.recorder import Event, events
from tests.faults.subscriber import kept
from tests.faults.world import Advances, World
from tests.faults.writers import Drawn, Operation, Row
from tests.fix_server import server_without_spark

pytestmark = pytest.mark.faults

SECONDS = 8.0
POINTS, STATES = 60, 3  # of power failure, and how many states of the disk are opened for each
SLACK_NS = 2_000_000  # the greatest difference between the clocks of strace and of the clients
END_OF_TIME = 2**62


@dataclass
class Recording:
    """The server's operations on its disk, and what its clients received. `clock_ns`: unix time minus monotonic
    time."""

    events: list[Event]
    operations: list[Operation]
    progress: list[tuple[int, int]]
    advances: list[Advances]
    drawn: list[Drawn]
    clock_ns: int

    def known_at(self, at: float, last: float) -> tuple[list[Operation], int, dict[str, int], dict[str, int]]:
        """What the clients had received at the time `at`: operations, the greatest progress, the least possible time
        of each hold, and the greatest value of each sequence.

        Operations that were sent before the time `last` are included, too.
        """
        now_ns, last_ns = int(at * 1e9) - self.clock_ns, int(max(at, last) * 1e9) - self.clock_ns
        operations = {o.name: dataclasses.replace(o) for o in self.operations if o.sent_ns < last_ns + SLACK_NS}
        for operation in operations.values():
            ns = operation.acknowledged_ns
            operation.acknowledged_ns = ns if ns is not None and ns < now_ns - SLACK_NS else None
            if operation.deletes is not None:
                operation.deletes = operations[operation.deletes.name]
        progress = max((time for time, ns in self.progress if ns < now_ns), default=0)
        places = {a.hold: a.acknowledged_before(now_ns - SLACK_NS) for a in self.advances}
        values: dict[str, int] = {}
        for one in self.drawn:
            if one.received_ns < now_ns - SLACK_NS:
                values[one.sequence] = max(one.value, values.get(one.sequence, 0))
        return list(operations.values()), progress, places, values


def record(directory: Path, seed: int, mistake: str | None = None) -> Recording:
    root, trace = directory / "root", directory / "trace"
    root.mkdir()
    clock_ns = time.time_ns() - time.monotonic_ns()
    with World(directory, seed, spark=False, mistake=mistake, disk=root, trace=trace) as world:
        time.sleep(SECONDS)  # the duration of the recording
        operations, accounts, advances = world.cease()
        drawn = world.drawn
    assert abs(time.time_ns() - time.monotonic_ns() - clock_ns) < SLACK_NS / 2, "the system's clock was set meanwhile"
    assert not [what for account in accounts for what in account.broken]
    progress = [received for account in accounts for segment in account.segments for received in segment.progress]
    return Recording(list(events(trace, root)), operations, progress, advances, drawn, clock_ns)


def points(recording: Recording, dice: random.Random) -> list[int]:
    """The numbers of events before a power failure: at random times, and soon after an acknowledgement."""
    times = [event.at for event in recording.events]
    acknowledged = [o.acknowledged_ns for o in recording.operations if o.acknowledged_ns is not None]
    after = [bisect_right(times, (ns + SLACK_NS + recording.clock_ns) / 1e9) for ns in acknowledged]
    return sorted(dice.choices(after, k=POINTS // 2) + dice.choices(range(len(times)), k=POINTS - POINTS // 2))


def states(recording: Recording, directory: Path, dice: random.Random) -> Iterator[tuple[int, float, float, Path]]:
    """(number of events done, when the earliest other one began, when the last of them began, a possible state of the
    disk). Each state is removed after its use."""
    disk, done = Disk(), 0
    for point in points(recording, dice):
        for event in recording.events[done:point]:
            disk.do(event)
        done = point
        # Calls of threads overlap: a call that began before the point may be recorded by a later event.
        # A call can take long, so that calls that began after it are done.
        at = min((event.at for event in recording.events[point:]), default=recording.events[-1].at)
        last = max((event.at for event in recording.events[:point]), default=at)
        for _ in range(STATES):
            target = directory / "state"
            disk.lose_power(target, dice)
            yield point, at, last, target
            shutil.rmtree(target)


def contents_of(log: Log, state: persistence.CatalogState) -> dict[str, Counter[Row]]:
    found: dict[str, Counter[Row]] = {"events": Counter(), "ledger": Counter()}
    for item in state.items.values():
        if isinstance(item, Table) and item.name in found:
            rows = log.rows(item.id, END_OF_TIME, collection_schema(item)).to_pylist()
            found[item.name] = Counter(tuple(kept(value) for value in row.values()) for row in rows)
    return found


def check(
    data: Path, operations: list[Operation], progress: int, places: dict[str, int], values: dict[str, int]
) -> list[Violation]:
    """What is wrong with a state of the disk."""
    try:
        store = Store(data)
    except StoreError as error:
        return [Violation("repair", str(error))]
    try:
        found = []
        if (result := store.read("PRAGMA integrity_check")) != [("ok",)]:
            found.append(Violation("repair", f"integrity_check: {result}"))
        ((reserved_until,),) = store.read("SELECT value FROM meta WHERE key = 'reserved_until'")
        if reserved_until < progress:
            found.append(
                Violation("order", f"progress {progress} was sent, but time is reserved until {reserved_until}")
            )
        state = persistence.load(store)
        found += violations(operations, [], contents_of(Log(store, Payloads(data / "payloads")), state))
        hold_times = {state.items[id].name: place.at for id, place in holds.load(store).items()}
        assert hold_times.keys() == {item.name for item in state.items.values() if isinstance(item, Hold)}
        for item in state.items_of(Sequence):
            value, _ = sequence_state.load(store, item.id, item.generation) or (0, False)
            if value < values.get(item.name, 0):
                text = f"{item.name} returned {values[item.name]}, and {value} is reserved"
                found.append(Violation("double", text))
        for hold, at in places.items():
            if at and hold_times.get(hold, 0) < at:
                found.append(Violation("hold", f"{hold} is at {hold_times.get(hold)}, but was advanced to {at}"))
        return found
    except Exception as error:
        return [Violation("repair", f"{type(error).__name__}: {error}")]
    finally:
        store.close()


def first_violation(recording: Recording, directory: Path, seed: int) -> tuple[int, str] | None:
    """The number of states that were opened, and what was wrong with the last one. None if no state is wrong."""
    for number, (point, at, last, state) in enumerate(states(recording, directory, random.Random(seed)), start=1):
        found = check(state / "data", *recording.known_at(at, last))
        if found:
            return number, f"after {point} of {len(recording.events)} events: {found[0]}"
    return None


@pytest.fixture(scope="module")
def seed() -> int:
    return int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))


@pytest.fixture(scope="module")
def recording(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The recording of a server without mistakes."""
    return record(tmp_path_factory.mktemp("recording"), seed)


def test_nothing_acknowledged_is_lost_by_a_power_failure(recording: Recording, seed: int, tmp_path: Path) -> None:
    bad = first_violation(recording, tmp_path, seed)
    assert bad is None, f"seed {seed}: {bad[1]}"
    syncs = sum(event.what == "sync done" for event in recording.events)
    writes = sum(operation.acknowledged_ns is not None for operation in recording.operations)
    print(
        f"\nseed {seed}: {len(recording.events)} events of the disk, {syncs} syncs, {writes} writes acknowledged; "
        f"power lost at {POINTS} points, {POINTS * STATES} states of the disk opened: losses 0"
    )


def test_a_server_starts_after_a_power_failure(recording: Recording, seed: int, tmp_path: Path) -> None:
    for number, (point, _, _, state) in enumerate(states(recording, tmp_path, random.Random(seed))):
        if number % (POINTS * STATES // 5) == 0:
            flags = ("--data-dir", str(state / "data"))
            log = tmp_path / f"log-{number}"
            server = server_without_spark(log, *flags)
            assert server.stop() == 0, f"seed {seed}, after {point} events"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MISTAKES if "power" in MISTAKES[name].needs])
def test_a_missing_sync_is_detected(name: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    found = first_violation(record(tmp_path, seed, name), tmp_path, seed)
    assert found is not None, f"{name} was not found, seed {seed}"
    print(f"\n{name}: found in state {found[0]}, {found[1][:200]}, seed {seed}")
