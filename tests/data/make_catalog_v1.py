"""Creates the sample data directory tests/data/catalog-v1: `python -m tests.data.make_catalog_v1`.

The sample represents the data directories of catalog format 1. A test opens a copy of it with the current code. Only
code that writes format 1 can create it again. Each later format has its own sample.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa

from catalog import persistence
from catalog import updates as u
from catalog.batches import Payload
from catalog.ids import ObjectId, Timestamp
from catalog.keys import Key
from catalog.log import Frontiers, Log
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from catalog.payloads import Payloads
from catalog.store import Store

DIRECTORY = Path(__file__).parent / "catalog-v1"
DB, OTHER_DB = Database(ObjectId("u1"), "materialize"), Database(ObjectId("u4"), "Other database")
PUBLIC, AUDIT = Schema(ObjectId("u2"), DB.id, "public"), Schema(ObjectId("u5"), OTHER_DB.id, "audit")
COLUMNS = (
    Column("id", "int4", nullable=False),
    Column("Amount", "numeric(10,2)", default="0.00"),
    Column("tags", "text[]"),
)
KEYS = (
    Key(0, "payments_pkey", ("id",), is_primary=True, is_enforced=False),
    Key(1, "payments_id_Amount_key", ("id", "Amount"), is_primary=False, is_enforced=False),
)
"""The keys, as later versions load them. Format 1 has only their columns."""
TABLE = Table(ObjectId("u6"), PUBLIC.id, "payments", COLUMNS, keys=KEYS)
VIEW = View(ObjectId("u7"), AUDIT.id, "v", COLUMNS[:1], 'SELECT "id" FROM "$id"."u6"', frozenset({TABLE.id}))
MVIEW = MaterializedView(
    ObjectId("u8"), PUBLIC.id, "m", (Column("n", "int8"),), 'SELECT count(*) FROM "$id"."u7"', frozenset({VIEW.id})
)
INDEX = Index(ObjectId("u9"), PUBLIC.id, "payments_id_idx", TABLE.id, ('"id"', 'lower("Amount"::text)'))

ARROW_SCHEMA = u.rows_schema([pa.int32(), pa.decimal128(10, 2), pa.list_(pa.string())])
INSERTED = pa.table(
    [
        pa.array([1, 2, None], pa.int32()),
        pa.array(["1.50", None, "-3.00"]).cast(pa.decimal128(10, 2)),
        pa.array([["a", None], [], None], pa.list_(pa.string())),
    ],
    schema=ARROW_SCHEMA,
)
LARGE = INSERTED.take(pa.array([0, 1] * 4))


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    store = Store(DIRECTORY)
    log = Log(store, Payloads(DIRECTORY / "payloads"))
    changes = u.with_diff(INSERTED.slice(1, 1), -1)
    file = log.prepare_stream(ARROW_SCHEMA, LARGE.to_batches())
    writes: list[tuple[int, Payload]] = [(1_000, log.prepare(INSERTED)), (2_000, file), (3_000, log.prepare(changes))]

    def act(tx: sqlite3.Connection) -> None:
        old = persistence.load(store)
        new = old
        for _ in range(6):
            _, new = new.new_id()
        new = new.with_database(OTHER_DB).with_schema(AUDIT)
        for item in (TABLE, VIEW, MVIEW, INDEX):
            new = new.with_item(item)
        persistence.save(tx, old, new)
        log.create(tx, TABLE.id, Frontiers(Timestamp(500), None))
        log.create(tx, MVIEW.id, Frontiers(Timestamp(500), Timestamp(2_500)))
        for time, payload in writes:
            log.insert(tx, TABLE.id, Timestamp(time), payload)
        tx.execute("UPDATE meta SET value = 13000 WHERE key = 'reserved_until'")

    store.transact(act)
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
