"""Files with CDCv2 messages to which a sink appends: lines of JSON, or blocks of an Avro container file."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from catalog.ids import Timestamp
from protocol.avro.container import (
    BLOCK_BYTES_MAX,
    HEADER_BYTES_MAX,
    SYNC_BYTES,
    Block,
    ContainerError,
    Header,
    encoded_block,
    encoded_header,
    parse_header,
    split_blocks,
)
from protocol.cdcv2.avro_form import PROGRESS_BRANCH, decoded_progress
from protocol.pgwire.errors import PgError, SqlState
from server.egress.file.appended_file import AppendedFile
from server.ingest.files.frontier_lines import last_number

BLOCK_BYTES = 1 << 16
WRITE_BYTES = 1 << 20  # that are written at once, or more

_PROGRESS = re.compile(rb'\n\{"com\.materialize\.cdc\.progress":\{"lower":\[\d{1,19}\],"upper":\[(\d{1,19})\]')
_PROGRESS_BYTES_MAX = 128  # of what the pattern matches


class ChangesFile(ABC):
    """The functions do IO and are called in threads. Errors as in `AppendedFile`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: AppendedFile | None = None
        self.frontier: Timestamp | None = None
        """When the file was opened, the `upper` of its last progress statement; None without one."""

    def open(self, *, is_new: bool) -> None:
        """Opens the file after its last complete message. PgError if it is missing although it is not new."""
        self._file = file = AppendedFile(self._path, is_new=is_new)
        self.frontier = self._continue(file, is_new=is_new)

    def refused(self, reason: str) -> PgError:
        """The error of a file that cannot be continued."""
        assert self._file is not None
        return self._file.refused(reason)

    def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        """Appends messages. Returns their number, and the number of bytes that were written."""
        assert self._file is not None
        count = size = 0
        waiting = bytearray()
        for number, data in self._encoded(messages):
            count += number
            waiting += data
            if len(waiting) >= WRITE_BYTES:
                size += self._file.append(waiting)
                waiting = bytearray()
        return count, size + self._file.append(waiting)

    def sync(self) -> None:
        """Returns when everything that was appended is on disk."""
        assert self._file is not None
        self._file.sync()

    def close(self) -> None:
        """May be called twice."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    @abstractmethod
    def _continue(self, file: AppendedFile, *, is_new: bool) -> Timestamp | None:
        """Removes an incomplete message at the end of the file. Returns the `upper` of the last progress statement.

        PgError if it is not a file of this sink.
        """

    @abstractmethod
    def _encoded(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """The bytes of the messages in the file, in parts, each with its number of messages."""


class Lines(ChangesFile):
    """A line per message."""

    def _continue(self, file: AppendedFile, *, is_new: bool) -> Timestamp | None:
        file.cut(_lines_end(file.number))
        return last_number(file.number, _PROGRESS, _PROGRESS_BYTES_MAX)[1]

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

    def _continue(self, file: AppendedFile, *, is_new: bool) -> Timestamp | None:
        try:
            begin = os.pread(file.number, HEADER_BYTES_MAX, 0)
            header = parse_header(begin) if begin.strip(b"\0") else None
            if header is None and is_new:
                file.cut(0)
                self._sync = os.urandom(SYNC_BYTES)
                file.append(encoded_header(self._schema, self._sync))
                return None
            if header is None:
                raise ContainerError(0, "the header is missing")
            end, frontier = _blocks_end(file.number, header)
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
        file.cut(end)
        self._sync = header.sync
        return frontier

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


def _blocks_end(file: int, header: Header) -> tuple[int, Timestamp | None]:
    """The end of the last complete block, and the `upper` of the last progress statement.

    What follows it is an incomplete block, of which a crash of the machine may have changed any byte. ContainerError if
    there are further blocks after it.
    """
    end, frontier = header.size, None
    while data := os.pread(file, WRITE_BYTES, end):
        try:
            found = split_blocks(data, end, header.sync)
        except ContainerError:
            break
        if found.blocks:
            end, frontier = found.end, _last_upper(found.blocks) or frontier
        elif found.wanted and os.pread(file, SYNC_BYTES, end + found.wanted - SYNC_BYTES) == header.sync:
            end += found.wanted
        else:
            break
    if _contains(file, header.sync, end):
        raise ContainerError(end, "the block is invalid, and others follow it")
    return end, frontier


def _last_upper(blocks: Sequence[Block]) -> Timestamp | None:
    """The `upper` of the last progress statement, which the sink writes in a block of its own."""
    for block in reversed(blocks):
        if block.count == 1 and block.data[:1] == PROGRESS_BRANCH:
            return Timestamp(decoded_progress(bytes(block.data[1:])).upper)
    return None


def _contains(file: int, part: bytes, begin: int) -> bool:
    """Whether a part occurs in the file after `begin`."""
    before = b""
    while data := os.pread(file, WRITE_BYTES, begin):
        if part in before + data:
            return True
        before, begin = data[1 - len(part) :], begin + len(data)
    return False
