"""Creates the sample data directory tests/data/catalog-v10: `python -m tests.data.make_catalog_v10`.

Like `make_catalog_v9`, for catalog format 10: with roles that have passwords.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from catalog import persistence
from catalog.ids import ObjectId
from catalog.roles import MATERIALIZE, Role
from catalog.store import Store
from tests.data import make_catalog_v9 as v9

DIRECTORY = Path(__file__).parent / "catalog-v10"
VERIFIER = (
    "SCRAM-SHA-256$4096:AAECAwQFBgcICQoLDA0ODw==$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=:"
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)
ADMIN = replace(MATERIALIZE, verifier=VERIFIER)
USER = Role(
    ObjectId("u113"), "alice", login=True, verifier=VERIFIER, valid_until=1_700_000_000_000_000, connection_limit=7
)


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(v9.DIRECTORY, DIRECTORY)
    DIRECTORY.chmod(0o700)
    store = Store(DIRECTORY)
    before = persistence.load(store)
    after = replace(before.with_role(ADMIN).with_role(USER), next_id=114, version=before.version + 1)
    store.transact(lambda tx: persistence.save(tx, before, after))
    store.close()
    (DIRECTORY / "lock").unlink()


if __name__ == "__main__":
    main()
