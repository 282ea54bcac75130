"""Creates the sample data directory tests/data/catalog-v4: `python -m tests.data.make_catalog_v4`.

Like `make_catalog_v1`, for catalog format 4: with checksums and a batch of several timestamps.
"""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

from catalog import persistence
from catalog.ids import Timestamp
from catalog.log import Frontiers, Log
from catalog.payloads import Payloads
from catalog.store import Store
from tests.data import make_catalog_v1 as v1

DIRECTORY = Path(__file__).parent / "catalog-v4"
TABLE = v1.TABLE
TIMES = (1_000, 2_000, 3_000)


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    store = Store(DIRECTORY)
    log = Log(store, Payloads(DIRECTORY / "payloads"))

    def define(tx: sqlite3.Connection) -> None:
        old = persistence.load(store)
        persistence.save(tx, old, replace(old, next_id=10).with_item(TABLE))
        log.create(tx, TABLE.id, Frontiers(Timestamp(500), None))
        tx.execute("UPDATE meta SET value = 13000 WHERE key = 'reserved_until'")

    store.transact(define)
    for time in TIMES:
        payload = log.prepare(v1.INSERTED)
        batch = store.transact(lambda tx, t=time, p=payload: log.insert(tx, TABLE.id, Timestamp(t), p))  # type: ignore[misc]
        log.committed([(batch, payload)])
    run = log.batches(TABLE.id)[:2]
    merged = log.merge_history(run)
    store.transact(lambda tx: log.replace(tx, run, merged, 0))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
