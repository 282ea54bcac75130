"""The service of a worker process that reads the files of one source, and its requests and answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from protocol.pgwire.errors import PgError
from server.ingest.files.file_format import FileFormat
from server.workers.messages import REQUEST, Call, arrow_stream, framed


@dataclass(frozen=True, slots=True)
class Part:
    """The length of a file, rows after a position, and the position after them, as `FileFormat` describes them."""

    size: int
    tables: list[pa.Table]
    end: int


def part_of(format: FileFormat, path: Path, position: int, bytes_max: int) -> Part:
    """Reads a part of a file: no rows if the file ends before the position."""
    size = format.size(path)
    if size < position:
        return Part(size, [], position)
    return Part(size, *format.read(path, position, bytes_max))


def request_of(format: FileFormat, work: Callable[..., Any], *arguments: Any) -> bytes:
    """Returns a request for `work(format, *arguments)`, with the bytes that frame it."""
    return framed(REQUEST, pickle.dumps((format, work, arguments)))


def result_of(answer: bytes) -> Any:
    """Returns the result in an answer. OSError, pa.ArrowException, PgError if the file could not be read."""
    result, streams = pickle.loads(answer)
    if isinstance(result, Exception):
        raise result
    if isinstance(result, Part):
        result.tables.extend(pa.ipc.open_stream(stream).read_all() for stream in streams)
    return result


class _Service:
    """Answers requests with one format, which keeps the file open that the last request has not read to its end."""

    def __init__(self) -> None:
        self._format: FileFormat | None = None

    def __call__(self, request: bytes, call: Call) -> bytes:
        format, work, arguments = pickle.loads(request)
        self._format = self._format or format
        try:
            result = work(self._format, *arguments)
        except MemoryError:
            raise
        except (OSError, pa.ArrowException, PgError) as error:
            return pickle.dumps((error, []))
        if isinstance(result, Part):  # a pickled slice contains the whole table
            return pickle.dumps((Part(result.size, [], result.end), [arrow_stream(rows) for rows in result.tables]))
        return pickle.dumps((result, []))


def service() -> Callable[[bytes, Call], bytes]:
    """The service of a worker that reads files."""
    return _Service()
