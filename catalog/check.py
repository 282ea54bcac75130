"""`tidewire check`: verifies every byte of a data directory that has a checksum, without changing anything.

SQLite's integrity check runs first. Then each batch is checked: the checksums of its row and its payload, and the
number of rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.batches import STORED, Batch, batch_of, decoded, verify
from catalog.ids import ObjectId
from catalog.migrations import MIGRATIONS, TooNew
from catalog.payloads import Payloads
from catalog.store import FILE, StoreError, check_exists, explained, is_unusable, lock

PROBLEMS_MAX = 100  # limit of PRAGMA integrity_check
CHECKSUMS_SINCE = 4  # format of the catalog that introduced checksums
_STORED_BEFORE = "id, collection, time, rows, bytes, file, NULL, NULL, NULL"


@dataclass(slots=True)
class Report:
    """The result of a check. `damage` has one line per problem found."""

    batches: int = 0
    bytes: int = 0
    without_checksum: int = 0
    """Batches written before checksums existed. Only their structure was checked."""
    unused_files: int = 0
    """Payload files that no batch names, for example after an interrupted write. The next start removes them."""
    damage: list[str] = field(default_factory=list)


def check(directory: Path) -> Report:
    """Checks a data directory. StoreError if it is not a data directory, is in use, or is of a later version."""
    report = Report()
    check_exists(directory)
    with ExitStack() as held:
        held.callback(os.close, lock(directory))
        connection = held.enter_context(closing(sqlite3.connect(directory / FILE, isolation_level=None)))
        payloads = Payloads(directory / "payloads", create=False)
        for step in (_check_catalog, _check_batches):
            try:
                step(connection, payloads, report)
            except sqlite3.DatabaseError as error:
                if is_unusable(error):
                    raise explained(directory, error) from error
                report.damage.append(f"{FILE}: {error}")
            except TooNew as error:
                raise StoreError(
                    f'data directory "{directory}" cannot be read: {error}', "Check it with the version that wrote it."
                ) from error
    return report


def _check_catalog(connection: sqlite3.Connection, _: Payloads, report: Report) -> None:
    connection.execute("PRAGMA query_only = 1")
    for (text,) in connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})"):
        if text != "ok":
            report.damage += [f"{FILE}: {line}" for line in str(text).splitlines()]


def _check_batches(connection: sqlite3.Connection, payloads: Payloads, report: Report) -> None:
    ((format_,),) = connection.execute("PRAGMA user_version").fetchall()
    if format_ > len(MIGRATIONS):
        raise TooNew(format_)
    names = dict(_names(connection))
    collections = {id for (id,) in connection.execute("SELECT id FROM collections")}
    named: set[str] = set()
    columns = STORED if format_ >= CHECKSUMS_SINCE else _STORED_BEFORE
    for row in connection.execute(f"SELECT {columns} FROM batches ORDER BY id").fetchall():
        id, collection, *_, file, payload_crc, _, _ = row
        if isinstance(file, str):
            named.add(file)
        report.batches += 1
        report.without_checksum += payload_crc is None
        try:
            batch = _checked_row(row)
            if collection not in collections:
                raise ValueError("its relation does not exist")
            if batch.file is not None:
                content = payloads.read(batch.file)
            else:
                ((payload,),) = connection.execute("SELECT payload FROM batches WHERE id = ?", (id,)).fetchall()
                content = pa.py_buffer(payload)
            report.bytes += len(content)
            verify(batch, content)
            decoded(batch, content).validate(full=True)
        except (OSError, ValueError, TypeError, pa.ArrowException, sqlite3.DatabaseError) as error:
            report.damage.append(f"batch {id} of {names.get(collection, collection)}: {error}")
    report.unused_files = len(payloads.names() - named)


def _checked_row(row: tuple[Any, ...]) -> Batch:
    """The batch that a row describes. ValueError if the row is damaged."""
    batch = batch_of(*row)
    if batch is None:
        raise ValueError("the checksum of its row does not match")
    spans = batch.spans
    if spans is not None and not (
        (np.diff(spans.times) >= 0).all()
        and (np.diff(spans.ends, prepend=0) >= 0).all()
        and (spans.times[-1], spans.ends[-1]) == (batch.time, batch.rows)
    ):
        raise ValueError("its times are not sorted")
    return batch


def _names(connection: sqlite3.Connection) -> Iterator[tuple[ObjectId, str]]:
    """Each object's id, and its kind and full name as the server's messages show them."""
    found = connection.execute(
        "SELECT i.id, i.kind, d.name, s.name, i.name FROM items i JOIN schemas s ON s.id = i.schema_id "
        "JOIN databases d ON d.id = s.database_id"
    )
    for id, kind, *parts in found:
        yield ObjectId(id), f'{kind} "{".".join(parts)}"'
