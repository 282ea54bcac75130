"""Creates the sample data directory tests/data/catalog-v9: `python -m tests.data.make_catalog_v9`.

Like `make_catalog_v8`, for catalog format 9: with a sink into PostgreSQL.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from catalog import persistence, source_state
from catalog.ids import ObjectId
from catalog.objects.connections import Connection
from catalog.objects.sinks import Sink
from catalog.store import Store
from tests.data import make_catalog_v8 as v8
from tests.data.make_catalog_v1 import PUBLIC

DIRECTORY = Path(__file__).parent / "catalog-v9"
CONNECTION = Connection(ObjectId("u111"), PUBLIC.id, "pg", "postgres", {"host": "127.0.0.1", "database": "d"}, {})
SINK = Sink(
    ObjectId("u112"),
    PUBLIC.id,
    "kept",
    v8.CHANGES.id,
    "postgres",
    {"schema": "public", "table": "kept"},
    None,
    connection=CONNECTION.id,
    key=("value",),
    identity="4",
)
SINK_STATE = {"as of": b"1700000000000", "frontier": b"1700000000002"}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v8.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    before = persistence.load(store)
    after = replace(before.with_item(CONNECTION).with_item(SINK), next_id=113, version=before.version + 1)
    store.transact(lambda tx: persistence.save(tx, before, after))
    store.transact(lambda tx: source_state.save(tx, SINK.id, SINK_STATE))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
