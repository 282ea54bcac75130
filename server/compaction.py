"""Background compaction: the log's batches behind `since` merge, so that disk follows what is held, not age.

One pass an interval, one merger a collection and pass; the merging is done in a thread, the swap in one transaction.
A failing merger is logged and tried again with the next pass: nothing that a reader sees depends on it.
"""

from __future__ import annotations

import asyncio

import structlog

from catalog.log import Batch, Log, Payload
from catalog.objects import ObjectId, Timestamp
from catalog.store import MustEnd, Store
from server.cancellation import raise_if_cancelled
from server.counts import Counts
from server.frontiers import Frontiers

log = structlog.get_logger()


async def compact(store: Store, log_: Log, frontiers: Frontiers, counts: Counts, interval_s: float) -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        for id in log_.collections():
            if id not in frontiers.floors:
                continue
            try:
                merged = await compact_collection(store, log_, frontiers, id)
                counts.merges += merged > 0
                counts.batches_merged += merged
            except MustEnd:
                return  # the committer meets the fence too, and ends the server
            except Exception as error:
                raise_if_cancelled()
                log.error("compaction failed", collection=id, error=str(error), exc_info=error)
        try:
            await store.give_back()
        except MustEnd:
            return
        except Exception as error:  # a full disk, most likely: it may have room again at the next pass
            raise_if_cancelled()
            log.error("free pages were not given back", error=str(error), exc_info=error)


async def compact_collection(store: Store, log_: Log, frontiers: Frontiers, id: ObjectId) -> int:
    """Merges one run of batches behind `since`; how many they were, 0 if there was none worth it."""
    since = frontiers.kept(id)
    run = log_.mergeable(id, since)
    if not run:
        return 0
    merged: Payload = await asyncio.to_thread(log_.merge, run)
    # From here to `replaced` no reader may ask for a time before `since`; `Frontiers.hold` refuses it from now on.
    frontiers.compacted(id, since)
    batch: Batch | None = await store.transaction(lambda tx: log_.replace(tx, run, merged, since))
    if batch is None:
        log_.discard(merged)  # the collection was dropped meanwhile
    else:
        log_.replaced(run, batch, merged)
    log.debug("compacted", collection=id, batches=len(run), rows=merged.table.num_rows, since=Timestamp(since))
    return len(run) if batch is not None else 0
