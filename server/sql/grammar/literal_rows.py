"""Fast path for INSERT ... VALUES of literal rows: no token, tree node or expression is created per value.

    `split(text)`           recognises such a statement of many rows and returns its head and the texts of all values
    `LiteralRows.column`    converts the values of one column to the type of the table's column
    `split_few(text)`       does the same for few rows, for which the plan is the largest part of the statement
    `FewLiterals.values`    converts the values to parameters of a statement that is planned once for all values

A statement is recognised if its values are numbers, strings without escapes, NULL, TRUE or FALSE, and no clause follows
the rows. All other statements, and those whose values need a cast between types, are parsed and planned value by value.
`tests/server/sql/test_literal_rows.py` checks that all ways give the same rows and errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from protocol.pgwire.decode import BadValue, parse_text_column
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import PgType
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.lexer import STRING

ROWS_MIN = 8  # with fewer rows, parsing value by value is as fast
CHUNK_ROWS = 500  # matched at once, in a few milliseconds, during which no other thread runs
HEAD_CHARS_MAX = 4_096
COLUMNS_MAX = 1_664  # a match keeps 250 bytes for each value of a row; a table has fewer columns

_SPACE = r"[ \t\n\r\f\v]*+"
_NUMBER = r"[-+]?(?:[0-9]++(?>(?:\.[0-9]*+)?)|\.[0-9]++)(?>(?:[eE][-+]?[0-9]++)?)"
_CELL = rf"(?:{STRING}|{_NUMBER}|(?i:null|true|false))(?={_SPACE}[,)])"
_NAMES = r'(?:[A-Za-z0-9_.$\x80-\U0010ffff \t\n\r\f\v]|"[^"]*")+?'
_HEAD = re.compile(
    rf"(?i:{_SPACE}insert\s+into\s){_NAMES}(?:\((?:[A-Za-z0-9_$,\x80-\U0010ffff \t\n\r\f\v]|\"[^\"]*\")*\))?"
    rf"{_SPACE}(?<![\w$])(?i:values){_SPACE}(?=\()"
)
_ROW = re.compile(rf"\({_SPACE}{_CELL}(?>(?:{_SPACE},{_SPACE}{_CELL}){{0,{COLUMNS_MAX - 1}}}){_SPACE}\)")
_CELLS = re.compile(_CELL)
_COMMA = re.compile(rf"{_SPACE},{_SPACE}")
_END = re.compile(rf"{_SPACE};?{_SPACE}")
_FEW = re.compile(rf"{_ROW.pattern}(?>(?:{_SPACE},{_SPACE}{_ROW.pattern}){{0,{ROWS_MIN - 2}}})(?={_END.pattern}\Z)")
_INTEGER = "^[-+]?[0-9]+$"
_INTEGERS = ("int2", "int4", "int8")
_FRACTIONS = ("numeric", "float4", "float8")


@lru_cache(64)
def _rows_of(width: int) -> re.Pattern[str]:
    """Matches between 1 and CHUNK_ROWS rows of `width` values."""
    row = rf"\({_SPACE}{_CELL}(?>(?:{_SPACE},{_SPACE}{_CELL}){{{width - 1}}}){_SPACE}\)"
    return re.compile(rf"{row}(?>(?:{_SPACE},{_SPACE}{row}){{0,{CHUNK_ROWS - 1}}})")


@dataclass(frozen=True, slots=True, eq=False)
class LiteralRows:
    """`text`: the whole statement. `head`: the text before its first row. `raw`: the texts of the values.

    `starts`: the index in the text of each chunk of CHUNK_ROWS rows.
    """

    text: str
    head: str
    raw: pa.Table
    starts: Sequence[int]

    def column(
        self, number: int, type: PgType, timezone: str, style: InputStyle = DEFAULT_INPUT
    ) -> pa.ChunkedArray | None:
        """The values of a column in `type.arrow`; None if they need a cast. BadValue for the first invalid row."""
        chunks, row = [], 0
        for chunk in self.raw.column(number).chunks:
            checkpoint()
            values = _values(chunk, type)
            if values is None:
                return None
            try:
                chunks.append(parse_text_column(type, values, timezone=timezone, style=style))
            except BadValue as error:
                raise BadValue(row + error.row, error.error) from None
            row += len(chunk)
        return pa.chunked_array(chunks, type.arrow)

    def row(self, number: int) -> tuple[str, int]:
        """The statement with only that row, and the offset from positions in it to positions in the whole text."""
        chunk, within = divmod(number, CHUNK_ROWS)
        match = _ROW.match(self.text, self.starts[chunk])
        for _ in range(within):
            assert match is not None
            comma = _COMMA.match(self.text, match.end())
            assert comma is not None
            match = _ROW.match(self.text, comma.end())
        assert match is not None
        return self.head + match[0], match.start() - len(self.head)


def split(text: str) -> LiteralRows | None:
    """The rows of an INSERT of at least ROWS_MIN literal rows; None for any other text."""
    if text.count("(") < ROWS_MIN:
        return None
    head = _HEAD.match(text, 0, HEAD_CHARS_MAX)
    first = _ROW.match(text, head.end()) if head is not None else None
    if head is None or first is None or "\0" in text:
        return None
    width = len(_CELLS.findall(first[0]))
    rows, position = _rows_of(width), head.end()
    starts: list[int] = []
    chunks: list[pa.RecordBatch] = []
    while True:
        checkpoint()
        match = rows.match(text, position)
        if match is None:
            return None
        cells = _CELLS.findall(text, match.start(), match.end())
        columns = [pa.array(cells[number::width], pa.string()) for number in range(width)]
        chunks.append(pa.RecordBatch.from_arrays(columns, [str(number) for number in range(width)]))
        starts.append(position)
        comma = _COMMA.match(text, match.end())
        if comma is None:
            break
        position = comma.end()
    if _END.fullmatch(text, match.end()) is None:
        return None
    raw = pa.Table.from_batches(chunks)
    return LiteralRows(text, text[: head.end()], raw, starts) if raw.num_rows >= ROWS_MIN else None


@dataclass(frozen=True, slots=True, eq=False)
class FewLiterals:
    """`template`: the statement with a parameter in place of each literal. `cells`: the literals' texts."""

    template: str
    cells: Sequence[str]

    def values(
        self, types: Sequence[PgType], timezone: str, style: InputStyle = DEFAULT_INPUT
    ) -> tuple[Any, ...] | None:
        """The values of the parameters, which have these types. None if one needs a cast. PgError if one is invalid."""
        found: list[Any] = []
        for cell, type in zip(self.cells, types, strict=True):
            word = cell.lower()
            if word == "null":
                found.append(None)
                continue
            if cell[0] == "'":
                cell = cell[1:-1].replace("''", "'")
            elif word in ("true", "false"):
                if type.name != "bool":
                    return None
            elif type.name in _INTEGERS:
                if not cell.lstrip("+-").isdigit():
                    return None
            elif type.name not in _FRACTIONS:
                return None
            found.append(parse_text(type, cell, timezone=timezone, style=style))
        return tuple(found)


def split_few(text: str) -> FewLiterals | None:
    """The literals of an INSERT of fewer than ROWS_MIN literal rows; None for any other text."""
    head = _HEAD.match(text, 0, HEAD_CHARS_MAX)
    rows = _FEW.match(text, head.end()) if head is not None else None
    if head is None or rows is None or "\0" in text:
        return None
    cells: list[str] = []

    def parameter(cell: re.Match[str]) -> str:
        cells.append(cell[0])
        return f"${len(cells)}"

    template = head[0] + _CELLS.sub(parameter, rows[0])
    return FewLiterals(template, cells)


def _values(raw: pa.Array, type: PgType) -> pa.Array | None:
    """Literals as text input for `type`; None if a literal has another type and needs a cast."""
    is_string = pc.starts_with(raw, "'")
    is_null = pc.equal(pc.ascii_lower(raw), "null")
    strings = pc.sum(is_string).as_py() or 0
    nulls = pc.sum(is_null).as_py() or 0
    if strings:
        if strings + nulls < len(raw):
            return None
        inner = pc.utf8_slice_codeunits(raw, 1, -1)
        if pc.any(pc.match_substring(inner, "''")).as_py():
            inner = pc.replace_substring(inner, "''", "'")
        return pc.if_else(is_null, pa.scalar(None, pa.string()), inner) if nulls else inner
    values = pc.if_else(is_null, pa.scalar(None, pa.string()), raw) if nulls else raw
    is_word = pc.is_in(pc.ascii_lower(raw), pa.array(["true", "false"]))
    words = pc.sum(is_word).as_py() or 0
    if words:
        return values if type.name == "bool" and words + nulls == len(raw) else None
    if type.name in _INTEGERS:
        return values if pc.all(pc.match_substring_regex(values, _INTEGER), min_count=0).as_py() else None
    return values if type.name in _FRACTIONS or nulls == len(raw) else None
