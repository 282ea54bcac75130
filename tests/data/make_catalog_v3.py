"""Creates the sample data directory tests/data/catalog-v3: `python -m tests.data.make_catalog_v3`.

Like `make_catalog_v1`, for catalog format 3: with a role that owns an object, holds with their positions, comments,
privileges and retained history.
"""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

from catalog import holds, persistence
from catalog.acls import AclItem
from catalog.holds import HoldPosition, Status
from catalog.ids import ObjectId, Timestamp
from catalog.log import Frontiers, Log
from catalog.objects.holds import Hold
from catalog.payloads import Payloads
from catalog.roles import MATERIALIZE, PUBLIC, Privilege, Role
from catalog.store import Store
from tests.data import make_catalog_v1 as v1

DIRECTORY = Path(__file__).parent / "catalog-v3"
TABLE = replace(v1.TABLE, retain_ms=3_600_000)
MVIEW = replace(v1.MVIEW, uses=frozenset({TABLE.id}), query='SELECT count(*) FROM "$id"."u6"', retain_ms=0)
INDEX = v1.INDEX
HOLD = Hold(ObjectId("u10"), v1.PUBLIC.id, "mailer", (TABLE.id, INDEX.id), 10_800_000)
LATE = Hold(ObjectId("u11"), v1.AUDIT.id, "late", (MVIEW.id,), 1_000)
PLACES = {HOLD.id: HoldPosition(Timestamp(1_500)), LATE.id: HoldPosition(Timestamp(2_000), Status.ADVANCED)}
ROLE = Role(ObjectId("u12"), "reader", login=True)
COMMENTS = {(TABLE.id, 0): "in cents", (TABLE.id, 2): "the amount", (HOLD.id, 0): "of the mailer"}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    store = Store(DIRECTORY)
    log = Log(store, Payloads(DIRECTORY / "payloads"))
    payload = log.prepare(v1.INSERTED)

    def act(tx: sqlite3.Connection) -> None:
        old = persistence.load(store)
        new = replace(old, next_id=13).with_database(v1.OTHER_DB).with_schema(v1.AUDIT).with_role(ROLE)
        for item in (TABLE, MVIEW, INDEX, HOLD, LATE):
            new = new.with_item(item)
        for (id, position), comment in COMMENTS.items():
            new = new.with_comment(id, position, comment)
        new = new.with_owner(HOLD.id, ROLE.id).with_acls(
            {TABLE.id: (AclItem(PUBLIC, MATERIALIZE.id, frozenset((Privilege.SELECT,))),)}
        )
        persistence.save(tx, old, new)
        holds.save(tx, PLACES.items())
        log.create(tx, TABLE.id, Frontiers(Timestamp(500), None))
        log.create(tx, MVIEW.id, Frontiers(Timestamp(500), Timestamp(2_500)))
        log.insert(tx, TABLE.id, Timestamp(1_000), payload)
        tx.execute("UPDATE meta SET value = 13000 WHERE key = 'reserved_until'")
        tx.execute("UPDATE meta SET value = 60000 WHERE key = 'downtime'")

    store.transact(act)
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
