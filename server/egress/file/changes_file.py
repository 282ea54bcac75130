"""Files with CDCv2 messages to which a sink appends: lines of JSON, or blocks of an Avro container file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from catalog import directory
from protocol.avro.container import (
    BLOCK_BYTES_MAX,
    HEADER_BYTES_MAX,
    SYNC_BYTES,
    ContainerError,
    Header,
    encoded_block,
    encoded_header,
    parse_header,
    split_blocks,
)
from protocol.pgwire.errors import PgError, SqlState

BLOCK_BYTES = 1 << 16
WRITE_BYTES = 1 << 20  # that are written at once, or more


class ChangesFile(ABC):
    """The functions do IO and are called in threads. OSError if the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def open(self, *, is_new: bool) -> None:
        """Opens the file after its last complete message. PgError if it is missing although it is not new."""
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if is_new else 0)
        try:
            self._file = os.open(self._path, flags, directory.FILE_MODE)
        except FileNotFoundError:
            if is_new:
                raise
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'file "{self._path}" of a sink does not exist',
                hint="Restore the file, or drop the sink and create it again.",
            ) from None
        self._continue(self._file, is_new=is_new)
        directory.sync(self._path.parent)

    def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        """Appends messages. Returns their number, and the number of bytes that were written."""
        count = size = 0
        waiting = bytearray()
        for number, data in self._encoded(messages):
            count += number
            waiting += data
            if len(waiting) >= WRITE_BYTES:
                size += self._write(waiting)
                waiting = bytearray()
        return count, size + self._write(waiting)

    def sync(self) -> None:
        """Returns when everything that was appended is on disk."""
        assert self._file is not None
        os.fsync(self._file)

    def close(self) -> None:
        """May be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes | bytearray) -> int:
        assert self._file is not None
        written = 0
        while written < len(data):
            written += os.write(self._file, memoryview(data)[written:])
        return written

    @abstractmethod
    def _continue(self, file: int, *, is_new: bool) -> None:
        """Removes an incomplete message at the end of the file. PgError if it is not a file of this sink."""

    @abstractmethod
    def _encoded(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """The bytes of the messages in the file, in parts, each with its number of messages."""


class Lines(ChangesFile):
    """A line per message."""

    def _continue(self, file: int, *, is_new: bool) -> None:
        os.ftruncate(file, _lines_end(file))

    def _encoded(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for message in messages:
            yield 1, message + b"\n"


class Container(ChangesFile):
    """An Avro object container file, whose values are messages. A block has about `BLOCK_BYTES`."""

    def __init__(self, path: Path, schema: str) -> None:
        """`schema`: of the messages."""
        super().__init__(path)
        self._schema = schema
        self._sync = b""

    def _continue(self, file: int, *, is_new: bool) -> None:
        try:
            begin = os.pread(file, HEADER_BYTES_MAX, 0)
            header = parse_header(begin) if begin.strip(b"\0") else None
            if header is None and is_new:
                os.ftruncate(file, 0)
                self._sync = os.urandom(SYNC_BYTES)
                self._write(encoded_header(self._schema, self._sync))
                return
            if header is None:
                raise ContainerError(0, "the header is missing")
            end = _blocks_end(file, header)
        except ContainerError as error:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'file "{self._path}" of a sink is damaged at byte {error.offset}: {error.reason}',
                hint="Restore the file, or drop the sink and create another one.",
            ) from None
        if (header.schema, header.codec) != (self._schema, "null"):
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'file "{self._path}" of a sink has another schema than the messages',
                detail="An Avro file has one schema, which cannot change with the columns of the collection.",
                hint="Drop the sink and create another one, with another file.",
            )
        os.ftruncate(file, end)
        self._sync = header.sync

    def _encoded(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        block: list[bytes] = []
        size = 0
        for message in messages:
            if len(message) > BLOCK_BYTES_MAX:
                text = f"message of {len(message)} bytes is too long for an Avro file"
                raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, text)
            if block and size + len(message) > BLOCK_BYTES:
                yield len(block), encoded_block(block, self._sync)
                block, size = [], 0
            block.append(message)
            size += len(message)
        if block:
            yield len(block), encoded_block(block, self._sync)


def _lines_end(file: int) -> int:
    """The end of the last complete line."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - BLOCK_BYTES)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _blocks_end(file: int, header: Header) -> int:
    """The end of the last complete block.

    What follows it is an incomplete block, of which a crash of the machine may have changed any byte. ContainerError if
    there are further blocks after it.
    """
    end = header.size
    while data := os.pread(file, WRITE_BYTES, end):
        try:
            found = split_blocks(data, end, header.sync)
        except ContainerError:
            break
        if found.blocks:
            end = found.end
        elif found.wanted and os.pread(file, SYNC_BYTES, end + found.wanted - SYNC_BYTES) == header.sync:
            end += found.wanted
        else:
            break
    if _contains(file, header.sync, end):
        raise ContainerError(end, "the block is invalid, and others follow it")
    return end


def _contains(file: int, part: bytes, begin: int) -> bool:
    """Whether a part occurs in the file after `begin`."""
    before = b""
    while data := os.pread(file, WRITE_BYTES, begin):
        if part in before + data:
            return True
        before, begin = data[1 - len(part) :], begin + len(data)
    return False
