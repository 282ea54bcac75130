"""Lines of JSON, of which those before the last line with a frontier are valid (docs/sinks.md, decision 072).

    {"value":{"before":null,"after":{"id":1}}}
    {"frontier":[1764000000000]}

A sink that continues removes what follows the last frontier and writes it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.ids import Timestamp
from catalog.objects.columns import Column
from server.ingest.files.raw_lines import LINE_BYTES_MAX, RawLines, check_length, tables_of
from server.ingest.files.regular_file import opened

READ_BYTES = 1 << 20  # that are searched at once for the last frontier

_FRONTIER = re.compile(rb'\n\{"frontier":\[(\d{1,19})\]\}(?=\n)')
_FRONTIER_LINE = r'^\{"frontier":\[\d{1,19}\]\}$'
_FRONTIER_BYTES_MAX = 64


def last_frontier(file: int, first: int = 0) -> tuple[int, Timestamp | None]:
    """The end of the last complete line with a frontier that begins at `first` or later, and this frontier.

    (`first`, None) if there is none.
    """
    return last_number(file, _FRONTIER, _FRONTIER_BYTES_MAX, first)


def last_number(file: int, line: re.Pattern[bytes], bytes_max: int, first: int = 0) -> tuple[int, Timestamp | None]:
    """As `last_frontier`, for the number in a line, or the begin of one, that matches a pattern.

    `line`: matches the newline before the line and at most `bytes_max` bytes, of which a group is the number.
    """
    begin = os.fstat(file).st_size
    while begin > first:
        begin = max(first, begin - READ_BYTES)
        before = os.pread(file, 1, begin - 1) if begin else b"\n"
        data = before + os.pread(file, READ_BYTES + bytes_max, begin)
        if found := list(line.finditer(data)):
            return begin + found[-1].end(), Timestamp(int(found[-1][1]))
    return first, None


def frontiers_of(lines: pa.BinaryArray) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The numbers of the lines that are frontiers, and these frontiers."""
    rows = np.flatnonzero(pc.match_substring_regex(lines, _FRONTIER_LINE).fill_null(False))
    digits = pc.binary_slice(lines.take(pa.array(rows)), len(b'{"frontier":['), -len(b"]}"))
    return rows, digits.cast(pa.string()).cast(pa.uint64()).to_numpy()


class FrontierLines(RawLines):
    """The valid lines, in one binary column. Positions are bytes.

    A read ends after a frontier if the data has one, so that the changes of a time are in one read if they are few.
    """

    def __init__(self, given: Sequence[Column]) -> None:
        """`given`: the columns of the rows."""
        super().__init__(given)
        self._valid: dict[Path, tuple[int, int]] = {}  # up to where a file was searched, and the end of its valid lines

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        with opened(path) as file:
            left = self._end(path, file.fileno(), position) - position
            file.seek(position)
            data = file.read(min(bytes_max, left))
            if len(data) < left:
                if b"\n" not in data:
                    data += file.readline(LINE_BYTES_MAX)
                check_length(data, path, position)
                frontiers = list(_FRONTIER.finditer(data))
                data = data[: frontiers[-1].end() + 1 if frontiers else data.rfind(b"\n") + 1]
        return tables_of(data), position + len(data)

    def _end(self, path: Path, file: int, position: int) -> int:
        """The end of the valid lines. Searches only what was appended since the last call."""
        size = os.fstat(file).st_size
        searched, end = self._valid.get(path, (position, position))
        if size < searched:  # a sink has removed what was not valid
            searched = end
        found, frontier = last_frontier(file, max(position, searched))
        if frontier is not None:
            end = found
        end = max(position, end)
        self._valid[path] = max(end, size - _FRONTIER_BYTES_MAX), end
        return end
