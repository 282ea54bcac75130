"""`python -m tests.faults.failing_sync DIRECTORY WAY`: commits under strace, which makes one of the syncs fail.

`WAY` is `transaction`, or `alone` for transactions of one statement. Prints the number whose commit failed, and kills
itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from functools import partial
from pathlib import Path

from catalog.store import Store
from tests.faults.moments import die


def put(number: int, tx: sqlite3.Connection) -> None:
    tx.execute("INSERT INTO settings VALUES (?, '')", (str(number),))


async def put_alone(store: Store, number: int) -> None:
    insert = "INSERT INTO settings SELECT ?, '' FROM meta WHERE key = 'epoch'"
    assert await store.insert_alone(insert, (str(number),)) is not None


def main(directory: Path, way: str) -> None:
    store = Store(directory)
    for number in range(60):
        try:
            if way == "alone":
                asyncio.run(put_alone(store, number))
            else:
                store.transact(partial(put, number))
        except sqlite3.OperationalError:
            print(number, flush=True)
            break
    die()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
