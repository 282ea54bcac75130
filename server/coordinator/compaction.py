"""Background compaction: merges the log's batches, so that disk use and read costs depend on held history, not on age.

One pass per interval makes at most two merges per collection: one of batches at or before `since`, whose updates are
consolidated, and one of held history, whose updates keep their times. A merge runs in a thread, and one transaction
replaces the batches. A cancelled pass ends after its thread, whose payload is discarded, so that nothing is written
after the coordinator is closed. A merge that fails is logged and repeated by the next pass. Readers do not depend on
it. A damaged batch is never merged, because the merged batch would have a valid checksum. The damage is logged once.

The same pass deletes errors of collections that no readable time needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from catalog.batches import Batch, Payload
from catalog.collection_errors import CollectionErrors
from catalog.ids import ObjectId, Timestamp
from catalog.log import Damaged, Dropped, Log
from catalog.store import MustEnd, Store
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.metrics import Metrics
from server.runtime.threads import thread_to_the_end
from server.timeline.frontiers import RETENTION_MS, Frontiers

log = structlog.get_logger()


async def compact(
    store: Store,
    log_: Log,
    frontiers: Frontiers,
    metrics: Metrics,
    interval_s: float,
    errors_compacted: Callable[[], Awaitable[None]],
) -> None:
    """Runs passes until cancelled. `errors_compacted` is `compact_errors`."""
    damaged: set[str] = set()
    while True:
        await asyncio.sleep(interval_s)
        for id in log_.collections():
            if id not in frontiers.floors:
                continue
            try:
                merged = await compact_collection(store, log_, frontiers, id)
                if merged:
                    metrics.compactions.inc()
                    metrics.compacted_batches.inc(merged)
            except MustEnd:
                return  # the committer fails in the same way and ends the server
            except Dropped:
                pass  # while its batches were merged
            except Damaged as error:
                if str(error) not in damaged:
                    damaged.add(str(error))
                    log.error("damaged data", collection=id, error=str(error), detail=error.detail)
            except Exception as error:
                raise_if_cancelled()
                log.error("compaction failed", collection=id, error=str(error), exc_info=error)
        try:
            await errors_compacted()
            await thread_to_the_end(log_.remove_unused)
            await store.give_back()
        except MustEnd:
            return
        except Exception as error:  # for example a full disk, which may have room at the next pass
            raise_if_cancelled()
            log.error("free space not released", error=str(error), exc_info=error)


async def compact_errors(
    store: Store, errors: CollectionErrors, frontiers: Frontiers, kept: Callable[[ObjectId], Timestamp]
) -> None:
    """Deletes the errors that no time needs at which the collections can be read. These times begin at `kept`."""
    for id in errors.collections:
        if id in frontiers.floors and errors.is_compactable(id, since := kept(id)):
            frontiers.compacted(id, since)
            await store.transaction(partial(errors.compact, id=id, since=since))
            errors.compacted(id, since)


async def compact_collection(store: Store, log_: Log, frontiers: Frontiers, id: ObjectId) -> int:
    """Merges one run of batches at or before `since` and one of held history. Returns the number of merged batches."""
    since = frontiers.log_start(id)
    merged = 0
    if run := log_.mergeable(id, since):
        payload: Payload = await thread_to_the_end(log_.merge, run, discard=log_.discard)
        # From here until `replaced`, no reader may use a time before `since`; `Frontiers.hold` refuses it from now on.
        frontiers.compacted(id, since)
        merged += await _replace(store, log_, run, payload, since)
    # The merge took time: what is now before `since` needs no merge that keeps its times.
    since = frontiers.log_start(id)
    # Batches within the default window are not merged: they will soon be before `since`, unless they are held.
    before = frontiers.upper(id) - RETENTION_MS if id in frontiers.floors else 0
    if run := log_.mergeable_history(id, since, before):
        payload = await thread_to_the_end(log_.merge_history, run, discard=log_.discard)
        merged += await _replace(store, log_, run, payload, 0)
    return merged


async def _replace(store: Store, log_: Log, run: tuple[Batch, ...], payload: Payload, since: int) -> int:
    """Replaces the run by the merged payload. Returns the number of batches in the run, 0 if they have been dropped."""
    with log_.discarding([payload]):
        batch: Batch | None = await store.transaction(lambda tx: log_.replace(tx, run, payload, since))
    if batch is None:
        log_.discard(payload)  # the collection was dropped meanwhile
        return 0
    log_.replaced(run, batch, payload)
    log.debug("compacted", collection=batch.collection, batches=len(run), rows=batch.rows, time=batch.time)
    return len(run)
