"""`tidewire backup`: copies a data directory, which a server may be using, as it was at one instant.

The copy of the catalog has the state after a transaction. The server may then remove payload files that it names,
because it has merged their batches. Another attempt copies the catalog again, and the files that the copy lacks. It
takes less time than the attempt before, because a payload file never changes: all other files are there. The copy gets
its catalog at the end, without which it is not a data directory.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from catalog import lost_times
from catalog.directory import DIRECTORY_MODE, FILE_MODE, create, is_empty, make, sync
from catalog.migrations import MIGRATIONS
from catalog.store import FILE, StoreError, check_exists

ATTEMPTS = 20


def back_up(directory: Path, target: Path) -> None:
    """Copies a data directory to `target`, a new or empty directory, and syncs the copy.

    StoreError if `directory` is not a data directory, if `target` is not empty, or if a file cannot be read or written.
    """
    check_exists(directory)
    catalog, payloads = target / f"{FILE}.partial", target / "payloads"
    try:
        _make_empty(target)
        make(payloads)
        for _ in range(ATTEMPTS):
            _copy_catalog(directory / FILE, catalog)
            missing = _copy_payloads(directory / "payloads", payloads, _payload_files(catalog))
            if missing is None:
                break
        else:
            raise StoreError(
                f'could not back up data directory "{directory}": it lacks the file payloads/{missing}',
                "A busy server may remove files before they are copied: try again. "
                "If no server uses the directory, run tidewire check.",
            )
        sync(payloads)
        os.rename(catalog, target / FILE)
        sync(target)
    except (OSError, sqlite3.DatabaseError) as error:
        raise StoreError(
            f'could not back up data directory "{directory}": {error}',
            "This user must be able to read the directory and to write the target, whose disk must have space.",
        ) from error


def _make_empty(target: Path) -> None:
    """Creates the directory, which only this user may read. StoreError if it has files."""
    make(target)
    if not is_empty(target):
        raise StoreError(f'directory "{target}" is not empty', "Name a directory that does not exist.")
    target.chmod(DIRECTORY_MODE)


def _copy_catalog(original: Path, copy: Path) -> None:
    """Copies the catalog as of its last transaction, and marks it as a backup. A server may write it meanwhile."""
    copy.unlink(missing_ok=True)
    create(copy)  # SQLite would create it readable by everyone
    with closing(sqlite3.connect(original)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        ((format_,),) = target.execute("PRAGMA user_version").fetchall()
        if format_ != len(MIGRATIONS):
            raise StoreError(
                f'data directory "{original.parent}" has format {format_}, and this version of Tidewire backs up '
                f"format {len(MIGRATIONS)}",
                "Use the version of its server. To back up an earlier format, start a server of this version first.",
            )
        with target:
            lost_times.begin(target)
    sync(copy)


def _payload_files(catalog: Path) -> set[str]:
    """The names of the payload files of a catalog."""
    with closing(sqlite3.connect(catalog)) as connection:
        return {name for (name,) in connection.execute("SELECT file FROM batches WHERE file IS NOT NULL")}


def _copy_payloads(original: Path, copy: Path, names: set[str]) -> str | None:
    """Makes `copy` have the files `names`, except those that neither directory has. Returns one of these."""
    present = {path.name for path in copy.iterdir()}
    for name in present - names:
        (copy / name).unlink()
    missing = None
    for name in names - present:
        try:
            source = (original / name).open("rb")
        except FileNotFoundError:
            missing = name
            continue
        with source, open(copy / name, "xb", opener=_private) as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
    return missing


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
