"""`python -m tests.faults.failing_sync DIRECTORY`: commits under strace, which makes one of the syncs fail.

Prints the number whose commit failed, and kills itself.
"""

from __future__ import annotations

import sqlite3
import sys
from functools import partial
from pathlib import Path

from catalog.store import Store
from tests.faults.moments import die


def put(number: int, tx: sqlite3.Connection) -> None:
    tx.execute("INSERT INTO settings VALUES (?, '')", (str(number),))


def main(directory: Path) -> None:
    store = Store(directory)
    for number in range(60):
        try:
            store.transact(partial(put, number))
        except sqlite3.OperationalError:
            print(number, flush=True)
            break
    die()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
