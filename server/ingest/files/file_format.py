"""The formats of files. A format has columns, and reads the rows after a position. Call its methods in threads."""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.pgwire.copy_errors import Place
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.copy_text import Lines
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.ingest.files.avro_files import AvroMessages, AvroRows
from server.ingest.files.conversion import converted, null_message
from server.ingest.files.frontier_lines import FrontierLines
from server.ingest.files.raw_lines import RawLines
from server.ingest.files.regular_file import opened
from server.ingest.source_definition import SourceDefinition, check_column_count

ROW_ENVELOPES = (Envelope.UPSERT, Envelope.DEBEZIUM)
BATCH_ROWS, BATCH_BYTES = 65_536, 8 * 1024 * 1024
BUFFER_BYTES = 1024 * 1024  # of each column of a Parquet file
RECORD_BYTES_MAX = 256 * 1024 * 1024
_SCAN_BYTES = 1024 * 1024
HEADER_BYTES_MAX = 1024 * 1024
SHOWN_MAX = 1_000  # characters of a header in an error
_END_MARKER = re.compile(rb"(?m)^\\\.\r?$")  # the decoder of COPY would ignore what follows it
_LINE = ("\x01", "\x02")  # the delimiter and the quote of lines that are not divided; JSON contains neither


class FileFormat(Protocol):
    """Reads files of one format. It can be pickled before the first file is read."""

    needs_worker: bool
    """Whether a worker process reads the files, because a read holds Python's interpreter lock, or takes memory that is
    not bounded by that of its data."""

    def columns(self, sample: Path | None) -> tuple[Column, ...]:
        """The columns, from a sample file if there is no column list. PgError if there is neither."""
        ...

    def resume(self, columns: Sequence[Column], schema: str | None) -> None:
        """Called before the first read. `columns`: of the source. `schema`: of Avro files, if one was stored."""
        ...

    def size(self, path: Path) -> int:
        """The length of the file, in units of positions."""
        ...

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        """The rows after a position, about `bytes_max` of data, and the position after them.

        The position does not advance if there is no further complete record. PgError for malformed data.
        """
        ...

    def close(self) -> None:
        """Closes the file that the last read may have left open."""
        ...


def format_of(definition: SourceDefinition) -> FileFormat:
    """The format of a definition. PgError 0A000 or 22023 if it cannot be a format of files."""
    format = definition.format or Format()
    is_changes = format.envelope is Envelope.MATERIALIZE
    if format.key is not None or format.include or format.inline_errors is not None:
        message = "KEY FORMAT, INCLUDE and VALUE DECODING ERRORS of a source from a file are not supported"
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            message,
            hint="Use FORMAT and ENVELOPE only: the rows of a file contain their keys.",
        )
    encoding = format.value
    if format.envelope in ROW_ENVELOPES:
        return _row_lines(format, definition)
    if format.envelope not in (Envelope.NONE, Envelope.MATERIALIZE):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {format.envelope.upper()} of a source from a file is not supported",
            hint="Use ENVELOPE NONE, UPSERT, DEBEZIUM or MATERIALIZE.",
        )
    if encoding is not None and encoding.name == "avro":
        schema = _schema_of(encoding, definition)
        return AvroMessages(definition.columns, schema) if is_changes else AvroRows(definition.columns, schema)
    if is_changes:
        if encoding is None or encoding.name != "json" or not definition.columns:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "ENVELOPE MATERIALIZE of a source from a file requires FORMAT AVRO, or FORMAT JSON and the columns",
                hint="Write CREATE SOURCE name (column type, ...) FROM FILE '...' FORMAT JSON ENVELOPE MATERIALIZE.",
            )
        return RawLines(definition.columns)
    match encoding.name if encoding is not None else None:
        case None:
            message = "a source from a file needs a FORMAT"
            raise PgError(SqlState.SYNTAX_ERROR, message, hint="Use FORMAT AVRO, CSV, JSON, TEXT or PARQUET.")
        case "csv":
            assert encoding is not None
            return Text.csv(definition, encoding.options)
        case "json" | "text" as name:
            (delimiter, quote), type = _LINE, "jsonb" if name == "json" else "text"
            given = definition.columns or (Column("data" if name == "json" else "text", type, nullable=False),)
            if len(given) != 1 or given[0].type not in (("json", "jsonb", "text") if name == "json" else ("text",)):
                message = f"FORMAT {name.upper()} has one column, of type {type}"
                hint = "Select the fields in a view: data->>'name'." if name == "json" else None
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
            null = "" if name == "json" else "\x03"
            options = CopyOptions.csv(delimiter=delimiter, quote=quote, null=null)
            return Text(given, options, has_header=False, skips_nulls=name == "json")
        case "parquet":
            return Parquet(definition.columns)
        case other:
            message = f"FORMAT {str(other).upper()} of a source from a file is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Use FORMAT AVRO, CSV, JSON, TEXT or PARQUET.")


def _row_lines(format: Format, definition: SourceDefinition) -> FrontierLines:
    if format.value is None or format.value.name != "json" or not definition.columns:
        envelope = format.envelope.upper()
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {envelope} of a source from a file requires FORMAT JSON and the columns",
            hint=f"Write CREATE SOURCE name (column type, ...) FROM FILE '...' FORMAT JSON ENVELOPE {envelope}.",
        )
    return FrontierLines(definition.columns)


def _schema_of(encoding: Encoding, definition: SourceDefinition) -> str | None:
    """The schema of USING SCHEMA. PgError 0A000 if files cannot have what a format says."""
    if encoding.registry is not None or encoding.options:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "a schema registry and CONFLUENT WIRE FORMAT of a source from a file are not supported",
            hint="Write FORMAT AVRO: the files contain their schemas.",
        )
    if encoding.schema is not None and definition.columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "USING SCHEMA and types of the columns cannot be combined",
            hint="Write only the names of the columns, or leave out USING SCHEMA.",
        )
    return encoding.schema


class Text:
    """Lines of CSV, JSON or text. Positions are bytes. A line is complete when its newline is written."""

    def __init__(
        self,
        given: Sequence[Column],
        options: CopyOptions,
        *,
        has_header: bool,
        header: Sequence[str] = (),
        skips_nulls: bool = False,
    ) -> None:
        """`given` is empty if the header names the columns. `header`: what each header must be; () if it is ignored.

        `skips_nulls`: whether lines whose only value is NULL are no rows.
        """
        self._given = tuple(given)
        self._options = options
        self._has_header = has_header
        self._header = tuple(header)
        self._skips_nulls = skips_nulls
        self.needs_worker = any(column.type in ("json", "jsonb") for column in given)  # these are parsed in Python

    @classmethod
    def csv(cls, definition: SourceDefinition, encoding: Mapping[str, str]) -> Text:
        options = definition.options
        characters = {"delimiter": encoding.get("delimited by", ",")}
        characters |= {"quote": options["quote"]} if "quote" in options else {}
        for name, value in characters.items():
            if len(value.encode()) != 1:
                message = f"CSV {name} must be a single one-byte character"
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        given = definition.columns
        header = encoding["names"].split(",") if "names" in encoding else ()
        if not given:
            given = tuple(Column(name, "text") for name in header)
        if not given and "columns" in encoding:
            check_column_count(int(encoding["columns"]))
            given = tuple(Column(f"column{n}", "text") for n in range(1, int(encoding["columns"]) + 1))
        null = {"null": options["null"]} if "null" in options else {}
        return cls(given, CopyOptions.csv(**characters, **null), has_header="header" in encoding, header=header)

    def resume(self, columns: Sequence[Column], schema: str | None) -> None:
        """If the first header has named the columns, those of all files must be the same."""
        if not self._given:
            self._given = tuple(columns)
            self._header = tuple(column.name for column in columns)

    def columns(self, sample: Path | None) -> tuple[Column, ...]:
        if self._given:
            if self._header and sample is not None:
                with opened(sample) as file:
                    header = file.readline(RECORD_BYTES_MAX)
                if header.endswith(b"\n"):
                    self._check_header(header, sample)
            return self._given
        if not self._has_header:
            message = "FORMAT CSV needs the columns"
            raise PgError(
                SqlState.SYNTAX_ERROR,
                message,
                hint="Write CREATE SOURCE name (column type, ...), WITH HEADER, or WITH n COLUMNS.",
            )
        if sample is None:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "there is no file with a header yet",
                hint="Write the columns: CREATE SOURCE name (column type, ...).",
            )
        with opened(sample) as file:
            names = self._names(file.readline(RECORD_BYTES_MAX), sample)
        check_column_count(len(names))
        return tuple(Column(name, "text") for name in names)

    def _names(self, line: bytes, path: Path) -> list[str]:
        """The names in a header. A byte order mark is not a part of the first one."""
        if len(line) > HEADER_BYTES_MAX:  # csv holds Python's interpreter lock
            check_column_count(line.count(self._options.delimiter.encode()) + 1)
            message = f'header of file "{path}" is too long'
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
        text = line.removeprefix(BOM_UTF8).decode(errors="replace").rstrip("\r\n")
        try:
            (names,) = csv.reader([text], delimiter=self._options.delimiter, quotechar=self._options.quote)
        except (csv.Error, ValueError) as error:
            message = f'header of file "{path}" is invalid: {error}'
            raise PgError(SqlState.BAD_COPY_FILE_FORMAT, message) from None
        return names or [""]

    def _check_header(self, line: bytes, path: Path) -> None:
        """PgError if the header is another one: the values would be in the wrong columns."""
        if self._header and (names := self._names(line, path)) != list(self._header):
            raise PgError(
                SqlState.BAD_COPY_FILE_FORMAT,
                f'header of file "{path}" does not have the columns of the source',
                detail=f"The columns are {', '.join(self._header)}, and the header is {', '.join(names)[:SHOWN_MAX]}.",
                hint="Write the file with these columns in this order. WITH HEADER must quote names with capitals. "
                "CREATE SOURCE name (column type, ...) ignores the names in headers.",
            )

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        columns = self._given or self.columns(path)
        types: list[tuple[str, PgType]] = [(c.name, parse_type(c.type)) for c in columns]
        with opened(path) as file:
            start = position
            if position == 0 and self._has_header:
                header = file.readline(RECORD_BYTES_MAX)
                if not header.endswith(b"\n"):
                    return [], 0
                self._check_header(header, path)
                start = len(header)
            file.seek(start)
            wanted = bytes_max
            while True:
                data = file.read(wanted)
                end = _records_end(data, self._options.quote)
                if end or len(data) < wanted:
                    break
                if wanted > RECORD_BYTES_MAX:
                    message = f'record at byte {start} of file "{path}" is too long'
                    raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
                file.seek(start)
                wanted = min(2 * wanted, RECORD_BYTES_MAX + 1)
        if not end:
            return [], position
        place = _FilePlace(str(path), start)
        # the regular expression holds Python's lock for 30 ms
        if b"\\" in data and (marker := _END_MARKER.search(data, 0, end)) is not None:
            error = PgError(SqlState.BAD_COPY_FILE_FORMAT, "end-of-copy marker found in data")
            raise place.at(error, data.count(b"\n", 0, marker.start()) + 1)
        lines = Lines(types, self._options, str(path), "UTC", place=place)
        arrays, _ = lines.read(data[:end], final=True)
        names = [f"c{number}" for number in range(len(types))]
        tables = [pa.table(columns, names) for columns in arrays if columns and len(columns[0])]
        if self._skips_nulls:
            filtered = (table.filter(table["c0"].is_valid()) for table in tables)
            return [table for table in filtered if table.num_rows], start + end
        self._check_nulls(tables, lines)
        return tables, start + end

    def _check_nulls(self, tables: Sequence[pa.Table], lines: Lines) -> None:
        """PgError 23502 if a column that is NOT NULL has NULL. `lines`: the reader of the rows."""
        before = 0
        for table in tables:
            for values, column in zip(table.columns, self._given, strict=False):
                if not column.nullable and values.null_count:
                    row = before + int(pc.index(values.is_null(), True).as_py())
                    error = PgError(SqlState.NOT_NULL_VIOLATION, null_message(column))
                    raise lines.located(error, row, shows_text=False)
            before += table.num_rows

    def close(self) -> None:
        """Each read closes its file."""


@dataclass(frozen=True, slots=True)
class _FilePlace(Place):
    """Names the file, the line and the column in the message of an error. `relation`: the path.

    `start`: the byte of the file at which the data begins. Lines are counted from the beginning of the file.
    """

    start: int

    def at(self, error: PgError, line: int, column: str | None = None, shown: str = "") -> PgError:
        number = line + _lines_before(Path(self.relation), self.start)
        named = f", column {column}" if column is not None else ""
        message = f'file "{self.relation}", line {number}{named}: {error.message}'
        return PgError(error.sqlstate, message, detail=error.detail, hint=error.hint)


def _lines_before(path: Path, position: int) -> int:
    """The number of lines before a byte of a file."""
    count = 0
    with opened(path) as file:
        while position > 0 and (data := file.read(min(position, _SCAN_BYTES))):
            count += data.count(b"\n")
            position -= len(data)
    return count


def _records_end(data: bytes, quote: str) -> int:
    """The end of the last complete record: of the last newline outside quotes. 0 if there is none.

    A quote within quotes is doubled, so a position is outside quotes if the number of quotes before it is even. The
    memory does not depend on the length of `data`.
    """
    if quote.encode() not in data:
        return data.rfind(b"\n") + 1
    content = np.frombuffer(data, np.uint8)
    end, is_inside = 0, False
    for start in range(0, len(content), _SCAN_BYTES):
        part = content[start : start + _SCAN_BYTES]
        inside = np.bitwise_xor.accumulate(part == ord(quote)) ^ is_inside
        ends = np.flatnonzero((part == ord("\n")) & ~inside)
        if len(ends):
            end = start + int(ends[-1]) + 1
        is_inside = bool(inside[-1])
    return end


class Parquet:
    """Parquet files. Positions are rows. A file is complete when it appears.

    A file stays open between two reads: a row group can only be read from its beginning. A file of a kilobyte can have
    pages, dictionaries and metadata of any size, which Arrow allocates before it reads them.
    """

    needs_worker = True

    def __init__(self, given: Sequence[Column]) -> None:
        self._given = tuple(given)
        self._opened: _OpenParquet | None = None

    def resume(self, columns: Sequence[Column], schema: str | None) -> None:
        """The first file has named the columns if there is no column list."""
        self._given = tuple(columns)

    def columns(self, sample: Path | None) -> tuple[Column, ...]:
        if self._given:
            return self._given
        if sample is None:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "there is no Parquet file yet",
                hint="Write the columns: CREATE SOURCE name (column type, ...).",
            )
        with opened(sample) as file:
            schema = pq.read_schema(file)
        return tuple(Column(field.name, _type_of(field), field.nullable) for field in schema)

    def size(self, path: Path) -> int:
        with opened(path) as file:
            return int(pq.read_metadata(file).num_rows)

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        columns = self.columns(path)
        opened, self._opened = self._opened, None
        if opened is None or (opened.path, opened.position) != (path, position):
            opened = _OpenParquet(path, position, [column.name for column in columns])
        tables: list[pa.Table] = []
        size = 0
        for batch in opened.batches:
            rows = pa.Table.from_batches([batch])
            tables.append(converted(rows, columns, path, partial(_numbered, opened.position)))
            size += tables[-1].nbytes
            opened.position += batch.num_rows
            if size >= bytes_max:
                self._opened = opened
                break
        return tables, opened.position

    def close(self) -> None:
        self._opened = None


def _numbered(position: int, row: int) -> str:
    """The number of a row, counted from 1, of those that begin at a position of a file."""
    return f"row {position + row + 1}"


class _OpenParquet:
    """A Parquet file that is being read. `batches`: those after `position`, which the reader advances."""

    def __init__(self, path: Path, position: int, names: Sequence[str]) -> None:
        self.path, self.position = path, position
        with opened(path):
            self._file = pq.ParquetFile(path, buffer_size=BUFFER_BYTES)
        ends = np.cumsum([self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)])
        first = int(np.searchsorted(ends, position, "right"))
        groups = list(range(first, len(ends)))
        skipped = position - (int(ends[first - 1]) if first else 0)
        stated = sum(self._file.metadata.row_group(n).total_byte_size for n in groups)
        rows = sum(self._file.metadata.row_group(n).num_rows for n in groups)
        batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(stated, 1)))
        self.batches = self._after(skipped, self._file.iter_batches(batch_rows, row_groups=groups, columns=names))

    @staticmethod
    def _after(skipped: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches after the first ones, in batches of about BATCH_BYTES at most."""
        for batch in batches:
            step = max(1, min(batch.num_rows, batch.num_rows * BATCH_BYTES // max(batch.nbytes, 1)))
            for start in range(skipped, batch.num_rows, step):
                yield batch.slice(start, step)
            skipped = max(0, skipped - batch.num_rows)


_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "bool",
    pa.int8(): "int2",
    pa.int16(): "int2",
    pa.uint8(): "int2",
    pa.int32(): "int4",
    pa.uint16(): "int4",
    pa.int64(): "int8",
    pa.uint32(): "int8",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}


def _type_of(field: pa.Field) -> str:
    """The PostgreSQL type for a column of a Parquet file. PgError 0A000 for a type without one."""
    type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if type in _TYPES:
        return _TYPES[type]
    if pa.types.is_timestamp(type):
        return "timestamptz" if type.tz is not None else "timestamp"
    if pa.types.is_time(type):
        return "time"
    if pa.types.is_decimal(type) and type.precision <= 38:
        return f"numeric({type.precision},{type.scale})"
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f'column "{field.name}" has the type {type}, which is not supported',
        hint="Omit the column: CREATE SOURCE name (column type, ...).",
    )
