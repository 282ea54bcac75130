"""Reads files of one format: in a thread, or in a worker process if the format needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from catalog.objects.columns import Column
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files.file_format import FileFormat
from server.ingest.files.reader_service import Part, part_of, request_of, result_of
from server.ingest.files.regular_file import opened
from server.ingest.upstream import UpstreamError
from server.workers.pool import RESULT_BYTES_MAX, WorkerPool

MEMORY_BYTES = 1 << 30  # of the worker, for one request


class FileReader:
    """Calls a format's methods without blocking the event loop. Call `close` at the end.

    OSError, pa.ArrowException and PgError as the format raises them, PgError 53200 if a read takes more than
    MEMORY_BYTES, UpstreamError if it takes too long. Cancel safety: the worker is killed.
    """

    def __init__(self, format: FileFormat) -> None:
        self._format = format
        service = "server.ingest.files.reader_service:service"
        self._pool = WorkerPool(service, 1, memory_bytes=MEMORY_BYTES, work="reading", hint=None)

    async def columns(self, sample: Path | None) -> tuple[Column, ...]:
        """As `FileFormat.columns`."""
        found: tuple[Column, ...] = await self._call(sample, _columns_of, sample)
        return found

    async def part(self, path: Path, position: int, bytes_max: int) -> Part:
        """Reads a part of a file."""
        found: Part = await self._call(path, part_of, path, position, bytes_max)
        return found

    async def close(self) -> None:
        """Ends the worker, which has open files and memory. A later call starts another one."""
        self._format.close()
        await self._pool.close()

    async def _call(self, path: Path | None, work: Callable[..., Any], *arguments: Any) -> Any:
        if not self._format.needs_worker or path is None:
            return await asyncio.to_thread(work, self._format, *arguments)
        await asyncio.to_thread(_check, path)  # before a worker is started
        try:
            answer = await self._pool.run(request_of(self._format, work, *arguments))
        except PgError as error:
            if error.sqlstate is SqlState.OUT_OF_MEMORY:
                raise PgError(
                    SqlState.OUT_OF_MEMORY,
                    f'could not read file "{path}": out of memory',
                    detail=f"It may take {MEMORY_BYTES >> 20} MiB, and its result {RESULT_BYTES_MAX >> 20} MiB.",
                    hint="Write the file with smaller values or pages.",
                ) from None
            if error.sqlstate in (SqlState.PROGRAM_LIMIT_EXCEEDED, SqlState.INTERNAL_ERROR):
                raise UpstreamError(f'could not read file "{path}": {error.message}') from None
            raise
        return await asyncio.to_thread(result_of, answer)


def _check(path: Path) -> None:
    """OSError if a path is no regular file."""
    opened(path).close()


def _columns_of(format: FileFormat, sample: Path | None) -> tuple[Column, ...]:
    return format.columns(sample)
