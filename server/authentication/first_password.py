"""The first password of the superuser, which is set before the server accepts clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalog import persistence
from catalog.roles import MATERIALIZE
from catalog.store import Store
from protocol.pgwire.errors import PgError
from server.authentication.access import AccessError
from server.authentication.verifiers import stored_form


def set_first_password(data_dir: Path, file: Path) -> bool:
    """Sets the password of role `materialize` to the first line of `file`, unless it has one. Returns whether it did.

    The file is read only if the role has no password. AccessError, or StoreError if the data directory cannot be used.
    No server may be using it.
    """
    store = Store(data_dir)
    try:
        before = persistence.load(store)
        role = before.roles[MATERIALIZE.id]
        if role.verifier is not None:
            return False
        after = replace(before.with_role(replace(role, verifier=_verifier(file))), version=before.version + 1)
        store.transact(lambda tx: persistence.save(tx, before, after))
        return True
    finally:
        store.close()


def _verifier(file: Path) -> str:
    """The verifier of the password in a file. AccessError."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f'could not read password file "{file}": {getattr(error, "strerror", "not text")}') from None
    if not lines or not lines[0]:
        raise AccessError(f'password file "{file}" is empty')
    try:
        return stored_form(lines[0])
    except PgError as error:
        raise AccessError(f'password file "{file}": {error.message}') from None
