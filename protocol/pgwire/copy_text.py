"""COPY FROM in text and CSV format: lines to columns.

Arrow's CSV parser reads data that it parses exactly as PostgreSQL does (`Lines._ordinary`). All other data, including
all invalid data, is read record by record by a port of src/backend/commands/copyfromparse.c (version 16). Only the port
raises errors. It also reads large records, for which Arrow's parser and the checks before it take too much memory.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from protocol.pgwire.copy_errors import Place, bad_file, quoted
from protocol.pgwire.copy_options import Columns, CopyFormat, CopyOptions, Header
from protocol.pgwire.decode import BadValue, direct_type, parse_text_column
from protocol.pgwire.errors import PgError
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.utf8 import decode_utf8

ORDINARY_BYTES_MAX = 4 << 20  # that are read at once by Arrow's parser
LINES_MAX = 8 << 20
"""The most rows of which the line is stored for each (64 MiB), because some records have several lines. An error of an
earlier row, which only a duplicate key can have so late, has no CONTEXT."""
RECORDS_MAX = 65_536  # that are read at once if Arrow's parser cannot be used
WINDOW = 1 << 18
"""The bytes or characters that a regular expression examines before other threads may run."""
PARTS_MAX = 4_096


class _DefaultMarker(str):
    """A field that represents the default of its column (option DEFAULT)."""

    __slots__ = ()


@dataclass(slots=True)
class _Record:
    """`count`: the number of its fields. `fields` has one more than there are columns at most."""

    line: int
    text: str
    fields: list[str | None]
    count: int


class Lines:
    """Reader of text and csv. `read` returns lists of column arrays and the number of bytes consumed.

    With the option DEFAULT, as many arrays follow, which are true where a field is the marker.
    """

    def __init__(
        self,
        columns: Columns,
        options: CopyOptions,
        relation: str,
        timezone: str,
        style: InputStyle = DEFAULT_INPUT,
        checkpoint: Callable[[], None] = lambda: None,
        defaulted: frozenset[int] = frozenset(),
        place: Place | None = None,
    ) -> None:
        """`place`: adds its line to an error. By default, it adds the line of COPY to the relation, where PostgreSQL
        does not count all newlines within quotes. With a place, all of them are counted.
        """
        self._columns, self._options, self._timezone = columns, options, timezone
        self._style, self._checkpoint, self._defaulted = style, checkpoint, defaulted
        self._where = place or Place(relation)
        self._counts_newlines = place is not None
        names = [name for name, _ in columns]
        self._never_null = options.positions(options.force_not_null, names, relation)
        self._null_if_quoted = options.positions(options.force_null, names, relation)
        converted = self._never_null | self._null_if_quoted
        self._direct = {
            index: found
            for index, (_, type) in enumerate(columns)
            if index not in converted and (found := direct_type(type)) is not None
        }
        self._is_csv = options.format is CopyFormat.CSV
        self._delimiter = ord(options.delimiter)
        self._header_due = options.header is not Header.NONE
        self._line = 0
        self._rows = 0
        self._lines: list[tuple[int, int | NDArray[np.int64]]] = []
        """Numbers of rows, each with its line if the next rows are in consecutive lines, otherwise with all lines."""
        self._kept_lines = 0  # in the arrays of `_lines`
        self._texts: list[tuple[int, Callable[[int], str]]] = []
        """Of the last call of `read`: the numbers of rows, and a function that returns the line of such a row."""
        self._end_of_line = b""  # of the first line; all others must be the same
        self._ended = False
        quote, escape = (re.escape(c.encode()) for c in (options.quote, options.escape))
        inside = rb"[^%b]*+" % quote if quote == escape else rb"(?>(?:[^%b%b]|%b[\s\S])*)" % (quote, escape, escape)
        self._csv_inside = re.compile(inside)
        self._csv_record = re.compile(rb"(?>(?:[^%b\r\n]++|%b%b%b)*)" % (quote, quote, inside, quote))
        self._text_field = re.compile(rf"(?>(?:[^\\{re.escape(options.delimiter)}]++|\\[\s\S])*)")
        marks = "".join(map(re.escape, sorted({options.delimiter, options.quote, options.escape})))
        self._csv_unmarked = re.compile(f"[^{marks}]*+")

    def read(self, data: bytes, *, final: bool) -> tuple[list[list[pa.Array]], int]:
        found: list[list[pa.Array]] = []
        used = 0
        self._texts = []
        while True:
            until = min(len(data), used + ORDINARY_BYTES_MAX)
            arrays, length = self._read_some(data[used:until], final and until == len(data))
            if not length and until < len(data):  # a record is longer
                arrays, length = self._read_some(data[used:], final)
            found += arrays
            used += length
            if not length or used == len(data):
                return found, used

    def _read_some(self, data: bytes, final: bool) -> tuple[list[list[pa.Array]], int]:
        """As `read`, but it may leave complete records for the next call."""
        if self._ended:
            return [], len(data)
        used = 0
        if self._header_due and not self._ended:
            used = self._read_header(data, final)
            if self._header_due:
                return [], 0
        marker = self._options.default
        has_marker = marker is not None and marker.encode() in data
        ordinary = None if has_marker else self._ordinary(data[used:] if used else data, final)
        if ordinary is not None:
            arrays, length = ordinary
            if marker is not None:
                arrays += [pa.repeat(False, len(arrays[0]))] * len(arrays)
            return [arrays], used + length
        records, used, fault = self._records(data, used, final)
        arrays = self._converted(records)  # an invalid value before the fault is reported first
        self._note(np.array([r.line for r in records], np.int64), lambda number: records[number].text)
        if fault is not None:
            raise fault
        return [arrays], used

    # -- the lines of rows

    def located(self, error: PgError, row: int, *, shows_text: bool) -> PgError:
        """The error of a row, by its number, with CONTEXT. Its text is only known after the `read` that returned it."""
        at = bisect_right(self._lines, row, key=itemgetter(0))
        if not at:  # see LINES_MAX
            return error
        first, line = self._lines[at - 1]
        number = line + row - first if isinstance(line, int) else int(line[row - first])
        found = [(start, text) for start, text in self._texts if start <= row] if shows_text else []
        shown = quoted(found[-1][1](row - found[-1][0])) if found else ""
        return self._where.at(error, number, shown=shown)

    def _note(self, lines: NDArray[np.int64], text: Callable[[int], str]) -> None:
        """Notes the lines of the next rows. `text` returns that of one of these rows."""
        if not len(lines):
            return
        first = int(lines[0])
        known, before = self._lines[-1] if self._lines else (0, 0)
        if int(lines[-1]) - first + 1 != len(lines):
            self._lines.append((self._rows, lines))
            self._kept_lines += len(lines)
            while self._kept_lines > LINES_MAX:
                _, oldest = self._lines.pop(0)
                self._kept_lines -= 0 if isinstance(oldest, int) else len(oldest)
        elif not isinstance(before, int) or before + self._rows - known != first:
            self._lines.append((self._rows, first))
        self._texts.append((self._rows, text))
        self._rows += len(lines)

    # -- the fast path: Arrow's parser

    def _ordinary(self, data: bytes, final: bool) -> tuple[list[pa.Array], int] | None:
        """The complete records of `data` by Arrow's parser; None if its result might differ from PostgreSQL's."""
        if len(data) > ORDINARY_BYTES_MAX:
            return None
        end = len(data) if final else data.rfind(b"\n") + 1
        newline = b"\r\n" if data.find(b"\r", 0, end) >= 0 else b"\n"
        quoted = self._is_csv and self._options.quote.encode() in data
        if not end or self._end_of_line not in (b"", newline) or b"\0" in data or data.startswith(b"\xef\xbb\xbf"):
            return None
        has_backslash = b"\\" in data  # the search for one byte is much faster than that for two
        if (has_backslash and b"\\." in data) or data.startswith(newline):
            return None
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)  # faster than a search for two bytes
        has_empty_line = newline * 2 in data if newline == b"\r\n" else bool((ends[1:] == ends[:-1] + 1).any())
        if has_empty_line:  # Arrow reads it as a row
            return None
        if newline == b"\r\n" and (quoted or len({data.count(mark, 0, end) for mark in (b"\r", b"\n", newline)}) > 1):
            return None
        has_escapes = has_backslash and not self._is_csv
        if has_escapes and self._escapes_a_separator(data):
            return None
        end = self._end_of_quoted(data, end, final) if quoted else end
        if not end:
            return None
        text = pa.py_buffer(data).slice(0, end)
        arrays = self._parsed(text, self._direct, quoted) if self._direct and not has_escapes else None
        if arrays is not None and self._may_be_wrapped(data, arrays):
            arrays = None
        if arrays is None:
            arrays = self._parsed(text, {}, quoted, has_escapes=has_escapes)
        if arrays is None:
            return None  # the exact reader reports the error and its position
        ends = ends[: np.searchsorted(ends, end)]
        lines = len(ends) + (end == len(data) and not data.endswith(b"\n"))
        numbers = np.arange(lines)
        if lines != len(arrays[0]):  # quoted line ends
            quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(self._options.quote))
            outside = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == 0)
            numbers, ends = np.append(outside, lines - 1)[: len(arrays[0])], ends[outside]
        self._note(self._line + 1 + numbers, partial(_record_text, data[:end], ends))
        self._line += lines
        self._end_of_line = self._end_of_line or (newline if b"\n" in data else b"")
        return arrays, end

    def _may_be_wrapped(self, data: bytes, arrays: list[pa.Array]) -> bool:
        """Whether an integer may be negative because Arrow reads 0xffffffffffffffff as -1."""
        integers = (arrays[index] for index, type in self._direct.items() if pa.types.is_integer(type))
        has_negative = any((pc.min(column).as_py() or 0) < 0 for column in integers)
        return has_negative and (b"0x" in data or b"0X" in data)

    def _parsed(
        self, text: pa.Buffer, direct: Mapping[int, pa.DataType], quoted: bool, *, has_escapes: bool = False
    ) -> list[pa.Array] | None:
        """The columns of complete records by Arrow's parser, those in `direct` as this type. None if it refuses."""
        options = self._options
        names = [f"c{index}" for index in range(len(self._columns))]
        types = {name: direct.get(index, pa.string()) for index, name in enumerate(names)}
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(text),
                read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=text.size + 1),
                parse_options=pa.csv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=options.quote if quoted else False,
                    double_quote=quoted,
                    escape_char=False,
                    newlines_in_values=quoted,
                    ignore_empty_lines=False,
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types=types,
                    null_values=[options.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            columns = [column.combine_chunks() for column in table.columns]
            if has_escapes:
                columns = [_without_escapes(column) for column in columns]
            return [column if index in direct else self._column(index, column) for index, column in enumerate(columns)]
        except (pa.ArrowInvalid, BadValue, PgError):
            return None

    def _end_of_quoted(self, data: bytes, end: int, final: bool) -> int:
        """The end of the complete records; 0 if there is a quote that neither encloses a whole field nor is doubled."""
        options = self._options
        if options.escape != options.quote and options.escape.encode() in data:
            return 0
        values = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(values == ord(options.quote))
        if not self._end_of_line and np.searchsorted(quotes, data.find(b"\n")) % 2:
            return 0  # PostgreSQL does not count line ends within the first record
        if not final:
            newlines = np.flatnonzero(values == 10)
            outside = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
            if not len(outside):
                return 0
            end = int(outside[-1]) + 1
            quotes = quotes[quotes < end]
        if len(quotes) % 2:
            return 0
        opening, closing = quotes[0::2], quotes[1::2]
        doubled = opening[1:] == closing[:-1] + 1
        if options.escape != options.quote and doubled.any():
            return 0
        before = np.where(opening > 0, values[opening - 1], 10)
        after = np.where(closing + 1 < end, values[np.minimum(closing + 1, end - 1)], 10)
        starts = (before == self._delimiter) | (before == 10)
        starts[1:] |= doubled
        ends = (after == self._delimiter) | (after == 10)
        ends[:-1] |= doubled
        return end if starts.all() and ends.all() else 0

    def _escapes_a_separator(self, data: bytes) -> bool:
        """Whether an unescaped backslash precedes a delimiter or the end of a line."""
        values = np.frombuffer(data, np.uint8)
        found = np.flatnonzero(values == ord("\\"))
        if found[-1] + 1 == len(values):
            return True
        first = np.ones(len(found), bool)
        first[1:] = found[1:] != found[:-1] + 1
        rank = np.arange(len(found))
        rank -= np.maximum.accumulate(np.where(first, rank, 0))
        escaped = values[found[rank % 2 == 0] + 1]
        return bool(((escaped == self._delimiter) | (escaped == 10) | (escaped == 13)).any())

    def _column(self, index: int, texts: pa.Array) -> pa.Array:
        is_null = pc.fill_null(pc.equal(texts, self._options.null), False) if index in self._null_if_quoted else None
        if index in self._never_null:
            texts = pc.fill_null(texts, self._options.null)
        if is_null is not None:
            texts = pc.if_else(is_null, None, texts)
        return parse_text_column(self._columns[index][1], texts, timezone=self._timezone, style=self._style)

    # -- the exact reader

    def _records(self, data: bytes, position: int, final: bool) -> tuple[list[_Record], int, PgError | None]:
        """Up to RECORDS_MAX complete records from `position`, their end, and the error that stopped reading, if any."""
        records: list[_Record] = []
        try:
            while not self._ended and len(records) < RECORDS_MAX:
                line = self._next_line(data, position, final)
                if line is None:
                    break
                raw, position = line
                if raw is not None:
                    records.append(self._record(raw))
        except PgError as fault:
            return records, position, fault
        return records, len(data) if self._ended else position, None

    def _record(self, raw: bytes) -> _Record:
        """Splits a line returned by `_next_line` into fields."""
        text = self._decoded(raw)
        try:
            return _Record(self._line, text, *(self._csv_fields(text) if self._is_csv else self._text_fields(text)))
        except PgError as error:
            raise self._where.at(error, self._line, shown=quoted(text)) from None

    def _decoded(self, line: bytes) -> str:
        try:
            return decode_utf8(line)
        except PgError as error:
            raise self._where.at(error, self._line) from None

    def _next_line(self, data: bytes, position: int, final: bool) -> tuple[bytes | None, int] | None:
        """CopyReadLine(): the next line without its line end, and the start of the following line. Counts the line.

        None if the data has no further complete line; (None, position) for the end marker.
        """
        if position >= len(data):
            return None
        end = self._end_of_csv_record(data, position) if self._is_csv else self._end_of(_TEXT_RECORD, data, position)
        line = data[position:end]
        mark = data[end : end + 1]
        unclosed = self._is_csv and mark == self._options.quote.encode()  # the closing quote has not arrived
        if not final and (unclosed or len(data) - end < 4):  # a line end or end marker may be incomplete
            return None
        self._line += 1
        if unclosed or (mark == b"\\" and end + 1 == len(data)):
            line, end, mark = data[position:], len(data), b""
        if self._is_csv:  # counts embedded lines as PostgreSQL does, which does not know the line end in the first line
            self._line += line.count(b"\n" if self._counts_newlines or self._end_of_line == b"\n" else b"\r")
            self._ended = line == b"\\." and mark != b"" and data.startswith(self._end_of_line, end)
        elif mark == b"\\":
            self._decoded(line)
            self._check_end_marker(data[end + 2 : end + 4])
            self._ended = True
        if self._ended:
            return None if self._is_csv or not line else line, len(data)
        if not mark:
            return line, len(data)
        return line, end + self._take_end_of_line(data[end : end + 2])

    def _end_of(self, repeated: re.Pattern[Any], data: Any, position: int) -> int:
        """The end of the longest match at `position`, of an expression of which repetitions match, too."""
        while True:
            self._checkpoint()
            match = repeated.match(data, position, position + WINDOW)
            assert match is not None
            if match.end() == position or match.end() < position + WINDOW - 1:  # an escape may be split by the window
                return match.end()
            position = match.end()

    def _end_of_csv_record(self, data: bytes, position: int) -> int:
        """The position of the line end, of an opening quote without a closing one, or of the end of the data."""
        quote = self._options.quote.encode()
        while True:
            position = self._end_of(self._csv_record, data, position)
            if data[position : position + 1] != quote:
                return position
            closing = self._end_of(self._csv_inside, data, position + 1)  # it is outside of the window
            if data[closing : closing + 1] != quote:
                return position
            position = closing + 1

    def _take_end_of_line(self, mark: bytes) -> int:
        """The length of this line's end. All line ends must be the same as the first."""
        expected = self._end_of_line
        if mark[:1] == b"\r":
            found = b"\r\n" if mark == b"\r\n" and expected != b"\r" else b"\r"
            word, letter = "carriage return", "\\r"
        else:
            found, word, letter = b"\n", "newline", "\\n"
        if expected not in (b"", found):
            how = "unquoted" if self._is_csv else "literal"
            hint = (
                f"Use quoted CSV field to represent {word}." if self._is_csv else f'Use "{letter}" to represent {word}.'
            )
            raise self._where.at(bad_file(f"{how} {word} found in data", hint), self._line)
        self._end_of_line = found
        return len(found)

    def _check_end_marker(self, after: bytes) -> None:
        """Raises unless the end marker of text format is followed by a line end like the others."""
        expected = self._end_of_line
        if after.startswith(expected) if expected else after[:1] in (b"\r", b"\n"):
            return
        if after[:1] == b"\n" or (after[:1] == b"\r" and expected != b"\r\n"):
            message = "end-of-copy marker does not match previous newline style"
        else:
            message = "end-of-copy marker corrupt"
        raise self._where.at(bad_file(message), self._line)

    def _text_fields(self, text: str) -> tuple[list[str | None], int]:
        """CopyReadAttributesText(): `fields` and `count` of a record."""
        if "\\" not in text and self._options.default is None:
            texts = text.split(self._options.delimiter, len(self._columns))  # one more than columns is an error
            fields = [None if field == self._options.null else field for field in texts]
            return fields, text.count(self._options.delimiter) + 1
        if (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1]  # a trailing backslash at the end of the data is dropped
        fields = []
        count = position = 0
        while True:
            end = self._end_of(self._text_field, text, position)
            field = text[position:end]
            value = None
            if field != self._options.null:
                marker = self._marker(field, len(fields))
                value = _unescape(field, self._checkpoint) if marker is None else marker
            count += 1
            if count <= len(self._columns) + 1:
                fields.append(value)
            if end == len(text):
                return fields, count
            position = end + 1

    def _marker(self, field: str, index: int) -> _DefaultMarker | None:
        """The field if it is the marker of the option DEFAULT. PgError 22P04 if its column has no default."""
        if field != self._options.default or index >= len(self._columns):
            return None
        if index not in self._defaulted:
            detail = f'Column "{self._columns[index][0]}" has no default value.'
            raise bad_file("unexpected default marker in COPY data", detail=detail)
        return _DefaultMarker(field)

    def _csv_fields(self, text: str) -> tuple[list[str | None], int]:
        """CopyReadAttributesCSV(): `fields` and `count` of a record. Quotes may begin and end anywhere in a field."""
        options = self._options
        fields: list[str | None] = []
        blocks: list[str] = []
        parts: list[str] = []
        start = position = count = 0
        saw_quote = in_quote = False

        def add_field(end: int) -> None:
            nonlocal count
            count += 1
            if len(fields) > len(self._columns):
                return
            field = text[start:end]
            if not saw_quote and field == options.null:
                fields.append(None)
            else:
                marker = self._marker(field, len(fields))
                fields.append("".join(blocks + parts) if marker is None else marker)

        while True:
            end = self._end_of(self._csv_unmarked, text, position)
            parts.append(text[position:end])
            if len(parts) > PARTS_MAX:
                blocks.append("".join(parts))
                parts = []
            if end == len(text):
                if in_quote:
                    raise bad_file("unterminated CSV quoted field")
                add_field(end)
                return fields, count
            mark, position = text[end], end + 1
            after = text[position : position + 1]
            if in_quote and mark == options.escape and after and after in options.escape + options.quote:
                parts.append(after)
                position += 1
            elif mark == options.quote:
                in_quote, saw_quote = not in_quote, True
            elif mark == options.delimiter and not in_quote:
                add_field(end)
                blocks, parts, start, saw_quote = [], [], position, False
            else:
                parts.append(mark)

    def _converted(self, records: list[_Record]) -> list[pa.Array]:
        """The records as column arrays. If there are several errors, the first in reading order is raised."""
        width = len(self._columns)
        faults: list[tuple[int, int, PgError]] = []
        for row, record in enumerate(records):
            given = len(record.fields)
            if given == width:
                continue
            if given > width:
                faults.append((row, -1, bad_file("extra data after last expected column")))
            else:
                name = self._columns[given][0]
                faults.append((row, given, bad_file(f'missing data for column "{name}"')))
            records = records[: row + 1]
            break
        arrays, markers = [], []
        for index in range(width):
            whole = [r.fields[index] for r in records if index < len(r.fields)]
            try:
                if self._options.default is None:
                    arrays.append(self._column(index, pa.array(whole, pa.string())))
                else:
                    values, marked = self._column_with_defaults(index, whole)
                    arrays.append(values)
                    markers.append(marked)
            except BadValue as bad:
                faults.append((bad.row, index, bad.error))
        if faults:
            row, index, error = min(faults, key=lambda fault: fault[:2])
            record = records[row]
            if 0 <= index < len(record.fields):
                name, _ = self._columns[index]
                value = record.fields[index]
                if value is None and index in self._never_null:
                    value = self._options.null
                elif value == self._options.null and index in self._null_if_quoted:
                    value = None
                raise self._where.at(error, record.line, name, quoted(value))
            raise self._where.at(error, record.line, shown=quoted(record.text))
        return arrays + markers

    def _column_with_defaults(self, index: int, fields: list[str | None]) -> tuple[pa.Array, pa.Array]:
        """The values of a column, NULL where the field is the marker of the default, and where it is."""
        marked = [isinstance(field, _DefaultMarker) for field in fields]
        rows = [row for row, is_marker in enumerate(marked) if not is_marker]
        try:
            values = self._column(index, pa.array([fields[row] for row in rows], pa.string()))
        except BadValue as bad:
            raise BadValue(rows[bad.row], bad.error) from None
        ranks = np.cumsum(np.logical_not(marked)) - 1
        return values.take(pa.array(ranks, mask=np.array(marked, bool))), pa.array(marked, pa.bool_())

    def _read_header(self, data: bytes, final: bool) -> int:
        """Reads the header line; returns the start of the next line. If it is incomplete, it is read again later."""
        line = self._next_line(data, 0, final)
        if line is None and not final:
            return 0
        self._header_due = False
        if line is None:
            self._line, line = 1, (b"", len(data))
        raw, position = line
        if self._options.header is Header.MATCH:
            self._match_header(self._record(raw or b""))
        return position

    def _match_header(self, record: _Record) -> None:
        names, fields = [name for name, _ in self._columns], record.fields
        error = None
        if record.count != len(names):
            error = f"wrong number of fields in header line: got {record.count}, expected {len(names)}"
        for number, (given, name) in enumerate(zip(fields, names, strict=False), start=1):
            if error is None and given != name:
                got = f'null value ("{self._options.null}")' if given is None else f'"{given}"'
                error = f'column name mismatch in header line field {number}: got {got}, expected "{name}"'
        if error is not None:
            raise self._where.at(bad_file(error), record.line, shown=quoted(record.text))


def _record_text(data: bytes, ends: NDArray[np.int64], number: int) -> str:
    """A record of complete ones, without its line end. `ends`: the positions of the line ends between records."""
    start = int(ends[number - 1]) + 1 if number else 0
    end = int(ends[number]) if number < len(ends) else len(data)
    return data[start:end].decode(errors="replace").removesuffix("\r")


_TEXT_RECORD = re.compile(rb"[^\\\r\n]*+(?>(?:\\[^.][^\\\r\n]*+)*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|([\s\S])|$)")
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def _without_escapes(array: pa.Array) -> pa.Array:
    has_escapes = pc.fill_null(pc.match_substring(array, "\\"), False)
    if not pc.any(has_escapes).as_py():
        return array
    plain = [_unescape(text, lambda: None) for text in array.filter(has_escapes).to_pylist()]
    return pc.replace_with_mask(array, has_escapes, pa.array(plain, pa.string()))


def _unescape(text: str, checkpoint: Callable[[], None]) -> str:
    """One field of COPY text without escapes. Raises PgError 22021 if the result is not UTF-8."""
    data, plain, position = text.encode(), bytearray(), 0
    for match in _ESCAPE.finditer(data):
        checkpoint()
        plain += data[position : match.start()]
        octal, hexadecimal, other = match.groups()
        if octal is not None:
            plain.append(int(octal, 8) & 0xFF)
        elif hexadecimal is not None:
            plain.append(int(hexadecimal, 16))
        elif other is not None:
            plain += _LETTERS.get(other, other)
        position = match.end()
    return decode_utf8(bytes(plain + data[position:]))
