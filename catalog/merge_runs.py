"""Which batches of a collection are merged next.

A batch is merged with later ones that together have about as many rows. A collection therefore has O(log n) batches
after n commits, and each row is rewritten O(log n) times. Apart from few small batches, the later ones together have at
most twice the rows of the first one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from catalog.batches import Batch

MERGE_BATCHES = 8  # a merge of fewer small batches is not worth its transaction
MERGE_ROWS = 64 * 1024  # a merge of at least this many rows is, if it includes the oldest batch
MERGE_BATCHES_MAX = 4_096  # in one merge: bounds its transaction
SPANS_MAX = 1 << 18  # a batch with this many times is not merged further, which bounds its `times` column in SQLite


def newest_run(batches: Sequence[Batch], *, consolidates: bool, spans_max: int | None = None) -> tuple[Batch, ...]:
    """The newest run of adjacent batches that should merge; empty if there is none.

    No batch of a run has more than 1.5 times the rows of the run's later ones together. With a larger factor, rows are
    rewritten more often. With a smaller one, more rows are stored that later batches retract. A run has at least
    MERGE_BATCHES, or the oldest batch and MERGE_ROWS rows, because retractions of the oldest batch's rows then cancel.
    Runs that are too short are skipped. They are few, because each has more than 1.5 times the rows of the next.

    `consolidates`: the merged batch will have one time, so a batch of several times is merged whatever its size.
    `spans_max`: batches with at least this many times do not merge.
    """
    run: list[Batch] = []
    rows = 0
    is_worth = False
    for number, batch in enumerate(itertools.islice(reversed(batches), MERGE_BATCHES_MAX), 1):
        has_times = consolidates and batch.spans is not None
        is_full = spans_max is not None and batch.spans is not None and len(batch.spans) >= spans_max
        if is_full or (run and 2 * batch.rows > 3 * rows and not has_times):
            if is_worth:
                break
            run, rows = [], 0
        if not is_full:
            run.append(batch)
            rows += batch.rows
            has_oldest = len(run) > 1 and number == len(batches)
            is_worth |= has_times or len(run) >= MERGE_BATCHES or (has_oldest and rows >= MERGE_ROWS)
    return tuple(reversed(run)) if is_worth else ()
