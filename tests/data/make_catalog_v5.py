"""Creates the sample data directory tests/data/catalog-v5: `python -m tests.data.make_catalog_v5`.

Like `make_catalog_v4`, for catalog format 5: with the state of a source.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from catalog import source_state
from catalog.store import Store
from tests.data import make_catalog_v4 as v4

DIRECTORY = Path(__file__).parent / "catalog-v5"
TABLE = v4.TABLE
STATE = {"partition 0": b"17", "partition 1": b"4"}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v4.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    store.transact(lambda tx: source_state.save(tx, TABLE.id, STATE))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
