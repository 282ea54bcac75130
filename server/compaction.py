"""Background compaction: merges the log's batches, so that disk and the cost of reads follow what is held, not age.

One pass per interval, at most two merges per collection and pass: one of batches at or before `since`, whose updates
are consolidated, and one of held history, whose updates keep their times. A merge runs in a thread; one transaction
replaces the batches. A merge that fails is logged and repeated by the next pass: readers do not depend on it. A damaged
batch is never merged, for the merged batch would have a valid checksum; the damage is logged once.
"""

from __future__ import annotations

import asyncio

import structlog

from catalog.log import Batch, Damaged, Log, Payload
from catalog.objects import ObjectId
from catalog.store import MustEnd, Store, Undecided
from server.cancellation import raise_if_cancelled
from server.counts import Counts
from server.frontiers import RETENTION_MS, Frontiers

log = structlog.get_logger()


async def compact(store: Store, log_: Log, frontiers: Frontiers, counts: Counts, interval_s: float) -> None:
    """Until cancelled."""
    damaged: set[str] = set()
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
            except Damaged as error:
                if str(error) not in damaged:
                    damaged.add(str(error))
                    log.error("damaged data", collection=id, error=str(error), detail=error.detail)
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
    """Merges one run of batches at or before `since`, and one of held history; returns how many batches were merged."""
    since = frontiers.kept(id)
    merged = 0
    if run := log_.mergeable(id, since):
        payload: Payload = await asyncio.to_thread(log_.merge, run)
        # From here to `replaced` no reader may ask for a time before `since`; `Frontiers.hold` refuses it from now on.
        frontiers.compacted(id, since)
        merged += await _replace(store, log_, run, payload, since)
    # What is younger than the default window is behind `since` soon, unless somebody holds it.
    before = frontiers.upper(id) - RETENTION_MS if id in frontiers.floors else 0
    if run := log_.mergeable_history(id, since, before):
        payload = await asyncio.to_thread(log_.merge_history, run)
        merged += await _replace(store, log_, run, payload, 0)
    return merged


async def _replace(store: Store, log_: Log, run: tuple[Batch, ...], payload: Payload, since: int) -> int:
    """Puts the merged payload in the run's place; returns how many batches the run had, 0 if they have been dropped."""
    try:
        batch: Batch | None = await store.transaction(lambda tx: log_.replace(tx, run, payload, since))
    except Undecided:
        raise  # the next opening may find the merge done; if not, it removes the file
    except Exception:
        log_.discard(payload)
        raise
    if batch is None:
        log_.discard(payload)  # the collection was dropped meanwhile
        return 0
    log_.replaced(run, batch, payload)
    log.debug("compacted", collection=batch.collection, batches=len(run), rows=batch.rows, time=batch.time)
    return len(run)
