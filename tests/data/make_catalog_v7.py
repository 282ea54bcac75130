"""Creates the sample data directory tests/data/catalog-v7: `python -m tests.data.make_catalog_v7`.

Like `make_catalog_v6`, for catalog format 7: with an error of a collection.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from catalog.collection_errors import CollectionError, CollectionErrors
from catalog.ids import Timestamp
from catalog.store import Store
from tests.data import make_catalog_v6 as v6

DIRECTORY = Path(__file__).parent / "catalog-v7"
TOPIC = v6.TOPIC
ERROR = CollectionError("Decode error: x", 'Topic "orders", partition 0, offset 3.', "Drop the source.")
ENTRIES = ((Timestamp(10), ERROR), (Timestamp(20), None))


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v6.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    errors = CollectionErrors(store)
    for time, error in ENTRIES:
        store.transact(lambda tx, time=time, error=error: errors.save(tx, TOPIC.id, time, error))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
