"""The lines of a file as they are, in one binary column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from catalog.objects.columns import Column
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files.regular_file import opened

LINE_BYTES_MAX = 256 * 1024 * 1024


class RawLines:
    """A `FileFormat`. Positions are bytes. A line is complete when its newline is written."""

    needs_worker = False

    def __init__(self, given: Sequence[Column]) -> None:
        """`given`: the columns of what the lines contain."""
        self._given = tuple(given)

    def columns(self, sample: Path | None) -> tuple[Column, ...]:
        return self._given

    def resume(self, columns: Sequence[Column], schema: str | None) -> None:
        """Lines have no columns."""

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        with opened(path) as file:
            file.seek(position)
            data = file.read(bytes_max)
            if len(data) == bytes_max and b"\n" not in data:
                data += file.readline(LINE_BYTES_MAX)
        check_length(data, path, position)
        data = data[: data.rfind(b"\n") + 1]
        return tables_of(data), position + len(data)

    def close(self) -> None:
        """Each read closes its file."""


def check_length(data: bytes, path: Path, position: int) -> None:
    """PgError 54000 if `data`, which begins at `position`, is longer than a line may be."""
    if len(data) > LINE_BYTES_MAX:
        message = f'line at byte {position} of file "{path}" is too long'
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)


def tables_of(data: bytes) -> list[pa.Table]:
    """A list with the table of complete lines. It is empty if there are no lines."""
    lines = pa.array(data.split(b"\n")[:-1], pa.binary())
    return [pa.table([lines], ["c0"])] if len(lines) else []
