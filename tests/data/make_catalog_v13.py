"""Creates the sample data directory tests/data/catalog-v13: `python -m tests.data.make_catalog_v13`.

Like `make_catalog_v12`, for catalog format 13: with lists of privileges, and default privileges. The rows are written
in SQL, because the privileges TRIGGER and MAINTAIN did not exist.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from catalog.acls import AclItem
from catalog.migrations import MIGRATIONS
from catalog.objects.tables import Table
from catalog.roles import MATERIALIZE, DefaultAclKey, Privilege
from tests.data import make_catalog_v1 as v1
from tests.data import make_catalog_v3 as v3
from tests.data import make_catalog_v12 as v12

DIRECTORY = Path(__file__).parent / "catalog-v13"
_REFERENCES = frozenset((Privilege.REFERENCES,))
ACLS = {
    v3.TABLE.id: (AclItem(v12.GROUP, v12.GROUP, Table.privileges), AclItem(v12.MEMBER, v12.GROUP, _REFERENCES)),
    v3.MVIEW.id: (AclItem(MATERIALIZE.id, MATERIALIZE.id, frozenset((Privilege.SELECT,))),),
}
COLUMN_ACLS = {v3.TABLE.id: {2: (AclItem(v12.GROUP, v12.GROUP, _REFERENCES),)}}
DEFAULT_ACLS = {
    DefaultAclKey(v12.GROUP, v1.DB.id, None, "r"): (
        AclItem(v12.GROUP, v12.GROUP, Table.privileges),
        AclItem(v12.MEMBER, v12.GROUP, _REFERENCES),
    ),
}
"""The privileges after the migration."""


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v12.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    with closing(sqlite3.connect(DIRECTORY / "catalog.sqlite")) as connection, connection:
        connection.executescript(MIGRATIONS[12][1])
        connection.executemany(
            "INSERT OR REPLACE INTO acls VALUES (?, ?, ?)",
            [
                (v3.TABLE.id, 0, json.dumps([[v12.GROUP, v12.GROUP, "arwdDx"], [v12.MEMBER, v12.GROUP, "x"]])),
                (v3.MVIEW.id, 0, json.dumps([[MATERIALIZE.id, MATERIALIZE.id, "r"]])),
                (v3.TABLE.id, 2, json.dumps([[v12.GROUP, v12.GROUP, "x"]])),
            ],
        )
        connection.execute(
            "INSERT INTO default_acls VALUES (?, ?, '', 'r', ?)",
            (
                v12.GROUP,
                v1.DB.id,
                json.dumps([[v12.GROUP, v12.GROUP, "arwdDx"], [v12.MEMBER, v12.GROUP, "x"]]),
            ),
        )
        connection.execute("PRAGMA user_version = 13")


if __name__ == "__main__":
    main()
