"""Creates the sample data directory tests/data/catalog-v6: `python -m tests.data.make_catalog_v6`.

Like `make_catalog_v5`, for catalog format 6: with a secret, connections and sources.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from catalog import persistence, source_state
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.connections import Connection
from catalog.objects.secrets import NamedSecret, Secret
from catalog.objects.sources import Source, SourceTable, Subsource
from catalog.source_definition import Encoding, Envelope, Format, ForTables, Include
from catalog.store import Store
from tests.data import make_catalog_v5 as v5
from tests.data.make_catalog_v1 import PUBLIC

DIRECTORY = Path(__file__).parent / "catalog-v6"

_SCHEMA = PUBLIC.id
_VALUE = Column("value", "text")
SECRET = NamedSecret(ObjectId("u101"), _SCHEMA, "password", Secret("correct horse"))
BROKER = Connection(
    ObjectId("u102"), _SCHEMA, "broker", "kafka", {"broker": "b:9092"}, {"sasl password": ObjectId("u101")}
)
REGISTRY = Connection(
    ObjectId("u103"), _SCHEMA, "registry", "confluent schema registry", {"url": "http://registry"}, {}
)
FORMAT = Format(
    Encoding("avro", registry=REGISTRY.id),
    Encoding("csv", options={"columns": "2", "delimited by": ";"}),
    (Include("offset", "o"), Include("header", "h", "key", True)),
    Envelope.UPSERT,
    "error",
)
TOPIC = Source(
    ObjectId("u104"),
    _SCHEMA,
    "topic",
    (Column("key", "text", False), _VALUE),
    "topic",
    ("key",),
    ("k", "v"),
    "kafka",
    BROKER.id,
    {"topic": "orders", "start offset": "0,5"},
    FORMAT,
    identity="0123456789abcdef",
    retain_ms=5_000,
)
FILE = Source(
    ObjectId("u105"),
    _SCHEMA,
    "file",
    (_VALUE,),
    "/data/*.csv",
    system="file",
    options={"path": "/data/*.csv"},
    format=Format(Encoding("csv")),
    given=(_VALUE,),
    identity="1",
)
TABLES = Source(
    ObjectId("u106"),
    _SCHEMA,
    "tables",
    (),
    system="load generator",
    options={"generator": "auction"},
    tables=ForTables(schemas=("s",), tables=(("bids", "b"), ("users", None))),
    identity="2",
)
SUBSOURCE = Subsource(ObjectId("u107"), _SCHEMA, "b", (_VALUE,), "bids", ("value",), source=TABLES.id)
SOURCE_TABLE = SourceTable(
    ObjectId("u108"), _SCHEMA, "u", (_VALUE,), "users", (), ("name",), FORMAT, source=TABLES.id, retain_ms=0
)
ITEMS = (SECRET, BROKER, REGISTRY, TOPIC, FILE, TABLES, SUBSOURCE, SOURCE_TABLE)
STATE = {"0": b"17"}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v5.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    before = after = persistence.load(store)
    for item in ITEMS:
        after = after.with_item(item)
    after = replace(after, next_id=109, version=before.version + 1)
    store.transact(lambda tx: persistence.save(tx, before, after))
    store.transact(lambda tx: source_state.save(tx, TOPIC.id, STATE))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
