"""COPY FROM in PostgreSQL's binary format: tuples to columns."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.buffers import starts_of
from protocol.pgwire.binary_columns import fixed_column
from protocol.pgwire.copy_errors import Place, bad_file
from protocol.pgwire.copy_options import Columns
from protocol.pgwire.decode import BadValue, parse_binary_column
from protocol.pgwire.errors import PgError

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_SIGNATURE = b"PGCOPY\n\xff\r\n\0"


class Binary:
    """Reader of COPY BINARY. `read` returns lists of column arrays and the number of bytes consumed."""

    def __init__(self, columns: Columns, relation: str) -> None:
        self._columns, self._where = columns, Place(relation)
        self._header_due = True
        self._ended = False
        self._line = 0
        self._row_dtype = _equal_row_dtype(columns)

    def read(self, data: bytes, *, final: bool) -> tuple[list[list[pa.Array]], int]:
        position = 0
        if self._header_due:
            begin = self._read_header(data, final)
            if begin is None:
                return [], 0
            position = begin
            self._header_due = False
        tables: list[list[pa.Array]] = []
        if not self._ended:
            equal, position = self._equal_rows(data, position)
            if equal is not None:
                tables.append(equal)
            others, position = self._other_rows(data, position, final)
            tables.append(others)
        if self._ended and position < len(data):
            raise self._where.at(bad_file("received copy data after EOF marker"), self._line + 1)
        return tables, position

    def located(self, error: PgError, row: int, *, shows_text: bool) -> PgError:
        """The error of a row, by its number, with CONTEXT. Binary data has no text to show."""
        return self._where.at(error, row + 1)

    def _read_header(self, data: bytes, final: bool) -> int | None:
        """The end of the header. None if the rest of it has not arrived, which a wrong beginning does not wait for."""
        if data[:11] != _SIGNATURE and (final or len(data) >= 11):
            raise bad_file("COPY file signature not recognized")
        if not final and len(data) < 19:
            return None
        if len(data) < 15:
            raise bad_file("invalid COPY file header (missing flags)")
        flags = int.from_bytes(data[11:15], "big")
        if flags & (1 << 16):
            raise bad_file("invalid COPY file header (WITH OIDS)")
        if flags >> 16:
            raise bad_file("unrecognized critical flags in COPY file header")
        extension = int.from_bytes(data[15:19], "big", signed=True)
        if len(data) < 19 or extension < 0:
            raise bad_file("invalid COPY file header (missing length)")
        if len(data) >= 19 + extension:
            return 19 + extension
        if final:
            raise bad_file("invalid COPY file header (wrong length)")
        return None

    def _equal_rows(self, data: bytes, position: int) -> tuple[list[pa.Array] | None, int]:
        """Decodes the leading rows without NULL in one step, if all columns have fixed-width types."""
        if self._row_dtype is None:
            return None, position
        rows = np.frombuffer(data, self._row_dtype, (len(data) - position) // self._row_dtype.itemsize, position)
        equal = rows["count"] == len(self._columns)
        for index in range(len(self._columns)):
            equal &= rows[f"length{index}"] == self._row_dtype[f"value{index}"].itemsize
        rows = rows if equal.all() else rows[: int(equal.argmin())]
        if not len(rows):
            return None, position
        values = []
        for index in range(len(self._columns)):
            column = rows[f"value{index}"]
            width = column.dtype.itemsize
            offsets = np.arange(0, width * (len(rows) + 1), width, dtype=np.int32)
            values.append(_binary_array(offsets, column.tobytes(), None))
        return self._converted(values, None), position + rows.nbytes

    def _other_rows(self, data: bytes, position: int, final: bool) -> tuple[list[pa.Array], int]:
        """NextCopyFrom(): finds the fields row by row, then decodes them by column."""
        width = len(self._columns)
        starts: list[int] = []
        lengths: list[int] = []
        fault: _Fault | None = None
        cut = bad_file("unexpected EOF in COPY data")
        size, row = len(data), position
        while fault is None:
            position = row
            if position + 2 > size:
                row = size if final else row  # PostgreSQL treats a single trailing byte as the end
                break
            (count,) = _INT16.unpack_from(data, position)
            position += 2
            if count == -1:
                self._ended, row = True, position
                break
            if count != width:
                fault = (-1, bad_file(f"row field count is {count}, expected {width}"))
                break
            for index in range(width):
                if position + 4 > size:
                    fault = (index, cut)
                    break
                (length,) = _INT32.unpack_from(data, position)
                position += 4
                if length < -1:
                    fault = (index, bad_file("invalid field size"))
                    break
                if position + length > size:
                    fault = (index, cut)
                    break
                starts.append(position)
                lengths.append(length)
                if length > 0:
                    position += length
            else:
                row = position
        if fault is not None and fault[1] is cut and not final:
            fault = None  # the rest of the row has not arrived
            del starts[len(starts) - len(starts) % width :], lengths[len(lengths) - len(lengths) % width :]
        return self._converted(self._gathered(data, starts, lengths), fault), row

    def _gathered(self, data: bytes, starts: list[int], lengths: list[int]) -> list[pa.Array]:
        """The fields, given in reading order, as one binary array per column. The last row may be incomplete."""
        width = len(self._columns)
        arrays = []
        for index in range(width):
            given = np.array(lengths[index::width], np.int32)
            values = [
                data[start : start + length] for start, length in zip(starts[index::width], given.tolist(), strict=True)
            ]
            offsets = starts_of(np.maximum(given, 0))
            arrays.append(_binary_array(offsets, b"".join(values), given < 0))
        return arrays

    def _converted(self, values: list[pa.Array], fault: _Fault | None) -> list[pa.Array]:
        """The columns' values. If there are several errors, the first in reading order is raised."""
        rows = len(values[-1]) if values else 0
        faults = [(rows, *fault)] if fault is not None else []
        arrays = []
        for index, ((_, type), column) in enumerate(zip(self._columns, values, strict=True)):
            try:
                arrays.append(parse_binary_column(type, column))
            except BadValue as bad:
                faults.append((bad.row, index, bad.error))
        if faults:
            row, index, error = min(faults, key=lambda fault: fault[:2])
            name = self._columns[index][0] if index >= 0 else None
            raise self._where.at(error, self._line + row + 1, name)
        self._line += rows
        return arrays


_Fault = tuple[int, PgError]  # the column's index, -1 for the whole row


def _binary_array(offsets: NDArray[np.int32], data: bytes, missing: NDArray[np.bool_] | None) -> pa.Array:
    valid = None if missing is None or not missing.any() else np.packbits(~missing, bitorder="little")
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _equal_row_dtype(columns: Columns) -> np.dtype[Any] | None:
    """The dtype of a COPY BINARY row without NULL; None if a column's type has no fixed width."""
    fields: list[tuple[str, str]] = [("count", ">i2")]
    for index, (_, type) in enumerate(columns):
        fixed = fixed_column(type)
        if fixed is None:
            return None
        fields += [(f"length{index}", ">i4"), (f"value{index}", f"V{fixed[0].itemsize}")]
    return np.dtype(fields)
