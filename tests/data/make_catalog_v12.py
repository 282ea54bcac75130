"""Creates the sample data directory tests/data/catalog-v12: `python -m tests.data.make_catalog_v12`.

Like `make_catalog_v10`, for catalog format 12: with members of roles, and privileges on objects, columns and parts. The
rows are written in SQL, because this format has other tables than later ones.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from catalog.acls import AclItem
from catalog.ids import ObjectId
from catalog.migrations import MIGRATIONS
from catalog.roles import MATERIALIZE, PUBLIC, Membership, MembershipKey, Privilege
from tests.data import make_catalog_v1 as v1
from tests.data import make_catalog_v3 as v3
from tests.data import make_catalog_v10 as v10

DIRECTORY = Path(__file__).parent / "catalog-v12"
GROUP, MEMBER, SEQUENCE = ObjectId("u120"), ObjectId("u121"), ObjectId("u122")
MEMBERSHIPS = {
    MembershipKey(GROUP, MEMBER, MATERIALIZE.id): Membership(inherit=False),
    MembershipKey(v3.ROLE.id, GROUP, MATERIALIZE.id): Membership(),
}
_OWN = frozenset((Privilege.SELECT, Privilege.INSERT))
ACLS = {
    v3.TABLE.id: (
        AclItem(GROUP, GROUP, _OWN),
        AclItem(PUBLIC, GROUP, frozenset((Privilege.SELECT,))),
        AclItem(MEMBER, GROUP, frozenset((Privilege.UPDATE, Privilege.DELETE))),
    ),
    SEQUENCE: (AclItem(MEMBER, GROUP, frozenset((Privilege.USAGE,))),),
    v3.MVIEW.id: (),
}
COLUMN_ACLS = {v3.TABLE.id: {2: (AclItem(MEMBER, GROUP, frozenset((Privilege.SELECT,))),)}}
_SEQUENCE = {
    "type": "bigint",
    "start": 1,
    "increment": 1,
    "minimum": 1,
    "maximum": 2**63 - 1,
    "cache": 1,
    "cycle": False,
    "owner_table": v3.TABLE.id,
    "owner_column": v3.TABLE.columns[0].name,
    "is_identity": False,
    "generation": 0,
    "first": 1,
}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v10.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    with closing(sqlite3.connect(DIRECTORY / "catalog.sqlite")) as connection, connection:
        for _, script in MIGRATIONS[10:12]:
            connection.executescript(script)
        connection.executemany(
            "INSERT INTO roles VALUES (?, ?, 0, ?, ?, 0)",
            [(GROUP, "writers", True, False), (MEMBER, "carol", False, True)],
        )
        connection.executemany("INSERT INTO memberships VALUES (?, ?)", [(key.member, key.role) for key in MEMBERSHIPS])
        connection.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (v3.TABLE.id, GROUP))
        connection.execute(
            "INSERT INTO items VALUES (?, ?, 'numbers', 'sequence', ?)",
            (SEQUENCE, v1.PUBLIC.id, json.dumps(_SEQUENCE)),
        )
        connection.execute("DELETE FROM privileges WHERE id = ?", (v3.TABLE.id,))
        connection.executemany(
            "INSERT INTO privileges VALUES (?, ?, ?)",
            [
                (v3.TABLE.id, GROUP, "ar"),
                (v3.TABLE.id, PUBLIC, "r"),
                (v3.TABLE.id, MEMBER, "wd"),
                (SEQUENCE, GROUP, ""),
                (SEQUENCE, MEMBER, "U"),
                (v3.MVIEW.id, MATERIALIZE.id, ""),
            ],
        )
        connection.execute("INSERT INTO column_privileges VALUES (?, 2, ?, 'r')", (v3.TABLE.id, MEMBER))
        connection.execute("UPDATE meta SET value = 123 WHERE key = 'next_id'")
        connection.execute("PRAGMA user_version = 12")


if __name__ == "__main__":
    main()
