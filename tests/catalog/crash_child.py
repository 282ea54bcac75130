"""A writer that is killed: `python -m tests.catalog.crash_child DIRECTORY SEED`.

It commits the numbers that follow those in the log, one transaction for each, and prints "number time" after each
acknowledgement. Payloads alternate between SQLite and files, and the log is compacted meanwhile.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa

from catalog import log as module
from catalog import merge_runs
from catalog import updates as u
from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from catalog.log import Frontiers, Log
from catalog.oracle import Oracle
from catalog.payloads import Payloads
from catalog.store import Store

T = ObjectId("u1")
SCHEMA = u.rows_schema([pa.int64(), pa.string()])
END_OF_TIME = 2**62


def main(directory: Path, seed: int) -> None:
    random_ = random.Random(seed)
    merge_runs.MERGE_BATCHES = 3
    module.INLINE_BYTES = 2_000
    store = Store(directory)
    log = Log(store, Payloads(directory / "payloads"))
    if T not in log.durable:
        store.transact(lambda tx: log.create(tx, T, Frontiers(Timestamp(0), None)))
    ((reserved_until,),) = store.read("SELECT value FROM meta WHERE key = 'reserved_until'")
    oracle = Oracle(reserved_until)
    number = max(log.rows(T, END_OF_TIME, SCHEMA)["c0"].to_pylist(), default=0)
    print("ready", flush=True)
    while True:
        number += 1
        time = oracle.next(random_.randrange(1_000_000))
        extension = oracle.extension()
        text = "x" * random_.choice([0, 10, 3_000, 30_000])
        payload = log.prepare(pa.table([[number], [text]], schema=SCHEMA))
        batch = store.transact(partial(commit, log, time, extension, payload))
        if extension is not None:
            oracle.extended(extension)
        log.committed([(batch, payload)])
        print(number, time, flush=True)
        if run := log.mergeable(T, time):
            merged = log.merge(run)
            merger = store.transact(partial(log.replace, run=run, merged=merged, since=time))
            assert merger is not None
            log.replaced(run, merger, merged)


def commit(log: Log, time: Timestamp, extension: int | None, payload: Payload, tx: sqlite3.Connection) -> Batch:
    if extension is not None:
        tx.execute("UPDATE meta SET value = ? WHERE key = 'reserved_until'", (extension,))
    return log.insert(tx, T, time, payload)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
