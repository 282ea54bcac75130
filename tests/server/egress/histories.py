"""The changes of a table in the log of a server, and the messages that sinks must have written of them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.kafka.sinks import TABLE
from tests.server.egress.child import running

Change = tuple[Any, Any, int, int]  # n, v, time, diff


async def history(directory: Path) -> list[Change]:
    """The changes in the log of the table, by time."""
    coordinator, _ = running(directory / "data")
    await coordinator.start()
    found: list[Change] = []
    for time in coordinator.log.times(TABLE.id, 0, 2**62):
        for table in coordinator.log.tables(TABLE.id, time, time + 1):
            found += [(row["c0"], row["c1"], time, row.get("diff", 1)) for row in table.to_pylist()]
    await coordinator.close()
    return found


def rows_of(changes: list[Change]) -> list[tuple[Any, Any, int]]:
    counts: dict[tuple[Any, Any], int] = defaultdict(int)
    for n, v, _, diff in changes:
        counts[n, v] += diff
    return [(n, v, count) for (n, v), count in counts.items() if count]


def upserts(changes: list[Change]) -> list[tuple[Any, Any]]:
    """The messages of ENVELOPE UPSERT."""
    after: dict[tuple[int, Any], Any] = {}
    for n, v, time, diff in changes:
        value = {"n": n, "v": v} if diff > 0 else None
        after[time, n] = after.get((time, n)) or value
    return [({"n": n}, value) for (_, n), value in sorted(after.items(), key=lambda item: item[0])]


def by_key(messages: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for key, value in messages:
        found[json.dumps(key)].append(value)
    return found
