"""Creates the sample data directory tests/data/catalog-v8: `python -m tests.data.make_catalog_v8`.

Like `make_catalog_v7`, for catalog format 8: with a source of ENVELOPE MATERIALIZE, and a sink.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from catalog import persistence, source_state
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.sinks import Sink
from catalog.objects.sources import Source
from catalog.source_definition import Encoding, Envelope, Format
from catalog.store import Store
from tests.data import make_catalog_v7 as v7
from tests.data.make_catalog_v1 import PUBLIC

DIRECTORY = Path(__file__).parent / "catalog-v8"
CHANGES = Source(
    ObjectId("u109"),
    PUBLIC.id,
    "changes",
    (Column("value", "text"),),
    "/data/*.json",
    system="file",
    options={"path": "/data/*.json", "stall timeout": "5s"},
    format=Format(Encoding("json"), envelope=Envelope.MATERIALIZE),
    given=(Column("value", "text"),),
    identity="3",
)
STATE = {"frontier": b"17", "file:/data/a.json": b"1024"}
SINK = Sink(
    ObjectId("u110"),
    PUBLIC.id,
    "copy",
    CHANGES.id,
    "file",
    {"path": "/data/copy.json"},
    Format(Encoding("json"), envelope=Envelope.MATERIALIZE),
    with_snapshot=False,
)
SINK_STATE = {"as of": b"1700000000000", "frontier": b"1700000000001"}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v7.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    before = persistence.load(store)
    after = replace(before.with_item(CHANGES).with_item(SINK), next_id=111, version=before.version + 1)
    store.transact(lambda tx: persistence.save(tx, before, after))
    store.transact(lambda tx: source_state.save(tx, CHANGES.id, STATE))
    store.transact(lambda tx: source_state.save(tx, SINK.id, SINK_STATE))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
