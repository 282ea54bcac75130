"""FROM FILE: the kind of source, and the upstream that reads files as they grow."""

from __future__ import annotations

import asyncio
import glob
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import pyarrow as pa
import structlog

from catalog.source_definition import Envelope
from catalog.source_state import State
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files.avro_files import AvroFiles, AvroMessages
from server.ingest.files.changes_of_files import SCHEMA, ChangesOfFiles, json_decoder
from server.ingest.files.file_format import ROW_ENVELOPES, FileFormat, format_of
from server.ingest.files.file_reader import FileReader
from server.ingest.files.frontier_lines import FrontierLines
from server.ingest.files.reader_service import Part
from server.ingest.files.rows_of_files import RowsOfFiles
from server.ingest.history import check_timestamps, stall_timeout_s
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Options, Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext, Statistics
from server.ingest.upstream import Changes, Upstream, UpstreamError

POLL_US = 1_000_000  # default of POLL INTERVAL
FILES_MAX = 1_000  # whose rows are committed together
POLL_S_MIN = 0.01  # a search for files takes a thread and the event loop for about a millisecond

log = structlog.get_logger()


class FileSource:
    """The kind of source of FROM FILE. The path is a pattern of glob."""

    async def validate(self, connection: Options) -> None:
        """There is nothing to contact."""

    async def outputs(self, definition: SourceDefinition) -> Sequence[Output]:
        if definition.tables:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a source from a file has one output",
                hint="Omit FOR TABLES: the source itself has the rows.",
            )
        path = definition.options["path"]
        if not path.startswith("/"):
            raise PgError(SqlState.INVALID_NAME, "relative path not allowed for a source from a file")
        OptionValues(definition.options).microseconds("poll interval")
        stall_timeout_s(definition.options)
        check_timestamps(definition.options, definition.format)
        return (await _output(FileReader(format_of(definition)), path, is_sampled=not definition.columns),)

    async def fixed_options(self, definition: SourceDefinition) -> Mapping[str, str]:
        return definition.options

    def upstream(self, definition: SourceDefinition, targets: Sequence[Target], context: SourceContext) -> Upstream:
        (target,) = targets
        format = format_of(definition)
        envelope = Envelope.NONE if definition.format is None else definition.format.envelope
        # Errors of the other envelopes name the file of a read.
        files_max = FILES_MAX if envelope is Envelope.NONE else 1
        files = _Files(definition, format, target, context.statistics, files_max)
        if envelope is not Envelope.MATERIALIZE:
            stall_s = stall_timeout_s(definition.options)
            files.idle = partial(files.report_cut_off, stall_s)
            context.statistics.stalls[target.id] = partial(files.cut_off, stall_s)
            return RowsOfFiles(files, envelope, target, context) if envelope in ROW_ENVELOPES else files
        decoder = format if isinstance(format, AvroMessages) else json_decoder(target)
        changes = ChangesOfFiles(
            files, decoder, definition, target, context, incomplete=files.incomplete, cut_off=files.cut_off
        )
        files.idle = changes.report_stall
        return changes

    async def dropped(self, definition: SourceDefinition) -> None:
        """There is nothing to remove."""


async def _output(reader: FileReader, path: str, *, is_sampled: bool) -> Output:
    """The output. `is_sampled`: whether the first file has the columns."""
    try:
        found = await asyncio.to_thread(_found, path)
        if not found and not glob.has_magic(path):
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f'could not open file "{path}" for reading: No such file or directory'
            )
        return Output(path, "file", await reader.columns(Path(found[0]) if found and is_sampled else None))
    except OSError as error:
        message = f'could not open file "{path}" for reading: {error.strerror or error}'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message) from None
    except pa.ArrowException as error:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'could not read file "{path}": {error}') from None
    except UpstreamError as error:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, error.message) from None
    finally:
        await reader.close()


def _found(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))


class _Files:
    """Reads the files in the order of their names.

    The state has the position in each file, by its path, and at `SCHEMA` the reader's schema of Avro files.
    """

    def __init__(
        self, definition: SourceDefinition, format: FileFormat, target: Target, statistics: Statistics, files_max: int
    ) -> None:
        """`files_max`: of one read."""
        self._pattern = definition.options["path"]
        poll_us = OptionValues(definition.options).microseconds("poll interval")
        self._poll_s = max((POLL_US if poll_us is None else poll_us) / 1e6, POLL_S_MIN)
        self._is_history = definition.format is not None and definition.format.envelope is Envelope.MATERIALIZE
        self._format = format
        self._reader = FileReader(format)
        self._target = target
        self._statistics = statistics
        self._files_max = files_max
        self._positions: dict[str, int] = {}
        self._unread: deque[tuple[str, int]] = deque()  # as of `_changed`, those that were not read since
        self._sizes: dict[str, int] = {}  # of files that have been read to this size
        self._schema: bytes | None = None  # of the state
        self._rest: dict[str, tuple[int, int]] = {}  # of files that end within a record: where it begins, its bytes
        self._reported: str | None = None  # the message of `cut_off` that was logged last
        self._rest_at: dict[str, float] = {}  # when they were found, by the monotonic clock
        self.idle: Callable[[], None] = lambda: None
        """Called whenever no file has further records."""

    def incomplete(self) -> str | None:
        """A sentence about the files that end within a record; None if no file does. Can be called in any thread."""
        files = sorted(self._rest.copy().items())
        if not files:
            return None
        (path, (position, size)), *others = files
        more = f", and {len(others)} other file{' does' if len(others) == 1 else 's do'}" if others else ""
        return f'File "{path}" {self._ends(position, size)}{more}.'

    def cut_off(self, age_s: float) -> PgError | None:
        """The error if a file has ended with the same incomplete record for so long. Can be called in any thread."""
        for path, (position, size) in sorted(self._rest.copy().items()):
            if monotonic() - self._rest_at.get(path, monotonic()) >= age_s:
                return PgError(
                    SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                    f'file "{path}" {self._ends(position, size)}',
                    hint=self._remedy,
                )
        return None

    def report_cut_off(self, age_s: float) -> None:
        """Logs the error of `cut_off`, once until it changes."""
        error = self.cut_off(age_s)
        message = None if error is None else error.message
        if error is not None and message != self._reported:
            log.warning("file is incomplete", error=message, hint=error.hint)
        self._reported = message

    def _ends(self, position: int, size: int) -> str:
        bytes = "1 byte" if size == 1 else f"{size} bytes"
        if isinstance(self._format, FrontierLines):
            return f"ends with {bytes} without a frontier at byte {position}"
        record = "block" if isinstance(self._format, AvroFiles) else "line"
        return f"ends with an incomplete {record} of {bytes} at byte {position}"

    @property
    def _remedy(self) -> str:
        """What to do if a file ends within a record."""
        if isinstance(self._format, FrontierLines):
            return "The lines are read after the sink has written a frontier: check that the sink is running."
        if self._is_history:
            return "Write the rest of the file, or the history to another file, and create the source again."
        if isinstance(self._format, AvroFiles):
            return "Write the rest of the file."
        return "Write the rest of the file. The last line, too, must end with a newline."

    async def open(self, state: State) -> None:
        paths = {key: value for key, value in state.items() if key != SCHEMA}
        self._positions = {path: int(value) for path, value in paths.items() if value is not None}
        self._unread.clear()
        self._sizes = {}
        self._rest = {}
        self._schema = state.get(SCHEMA)
        schema = None if self._schema is None else self._schema.decode()
        self._format.resume(self._target.output.columns, schema)

    async def read(self, bytes_max: int) -> Changes:
        while True:
            changes = await self._next(bytes_max)
            if changes is not None:
                return changes
            self.idle()
            await self._reader.close()
            await asyncio.sleep(self._poll_s)

    def _new_schema(self) -> dict[str, bytes]:
        """The reader's schema, if the state does not have it."""
        if self._schema is not None or not isinstance(self._format, AvroFiles) or self._format.reader is None:
            return {}
        self._schema = self._format.reader.encode()
        return {SCHEMA: self._schema}

    async def committed(self, state: State) -> None:
        """The files keep what was read."""

    async def close(self) -> None:
        await self._reader.close()

    async def _next(self, bytes_max: int) -> Changes | None:
        """The next rows, of the first files that have some, and the positions after them. None if no file has any.

        The files are searched again when all that were found have been read: their number may be large.
        """
        if not self._unread:
            self._unread.extend(await asyncio.to_thread(self._changed))
        tables: list[pa.Table] = []
        state: dict[str, bytes | None] = {}
        size = 0
        while self._unread and size < bytes_max and len(state) < self._files_max:
            path, length = self._unread[0]
            position = self._positions.get(path, 0)
            try:
                part = await self._part(path, position, bytes_max - size)
            except (PgError, UpstreamError):
                if state:
                    break  # the rows before are committed first
                raise
            if part.end > position:
                self._rest.pop(path, None)
                self._positions[path] = part.end
                state[path] = b"%d" % part.end
                tables += part.tables
                size += sum(table.nbytes for table in part.tables)
            elif part.size > position:
                self._rest_at[path] = monotonic()
                self._rest[path] = position, part.size - position
            if part.end in (position, part.size):
                self._sizes[path] = length
                self._unread.popleft()
        if not state:
            return None
        self._statistics.messages_received += sum(table.num_rows for table in tables)
        self._statistics.bytes_received += size
        return Changes({self._target.id: tables} if tables else {}, {**state, **self._new_schema()})

    async def _part(self, path: str, position: int, bytes_max: int) -> Part:
        """Reads a part of a file. PgError if it was truncated or is invalid, UpstreamError if it cannot be read."""
        try:
            part = await self._reader.part(Path(path), position, bytes_max)
        except OSError as error:
            raise UpstreamError(f'could not read file "{path}": {error.strerror or error}') from None
        except pa.ArrowException as error:
            raise UpstreamError(f'could not read file "{path}": {error}') from None
        if part.size < position:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'file "{path}" was truncated',
                detail=f"It ends at {part.size}, and was read up to {position}.",
                hint="Files of a source may only grow. Drop the source and create it again.",
            )
        return part

    def _changed(self) -> list[tuple[str, int]]:
        """The files that may have further rows, and their lengths in bytes, in the order of their names."""
        found = []
        paths = _found(self._pattern)
        self._rest = {path: rest for path, rest in self._rest.items() if path in paths}
        for path in paths:
            try:
                length = Path(path).stat().st_size if Path(path).is_file() else None
            except OSError as error:
                raise UpstreamError(f'could not read file "{path}": {error.strerror}') from None
            if length is not None and self._sizes.get(path) != length:
                found.append((path, length))
        return found
