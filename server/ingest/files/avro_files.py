"""Avro object container files. Positions are bytes, each the end of a block. A block is read when it is complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from catalog.objects.columns import Column
from protocol.avro.columns import columns_of
from protocol.avro.container import (
    HEADER_BYTES_MAX,
    SYNC_BYTES,
    Block,
    Blocks,
    ContainerError,
    ContainerLimitError,
    Header,
    decoded_block,
    parse_header,
    split_blocks,
    supported_codecs,
)
from protocol.avro.decoder import Decoder, Wanted
from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import SCHEMA_HINT, SchemaError, Type, parse_schema
from protocol.avro.sequence import SequenceError, split_sequences
from protocol.cdcv2.avro_form import AvroDecoder, CdcSchema, schema_text
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.messages import DIFF_FIELD, TIME_FIELD
from protocol.pgwire.decode import BadValue, parse_text_column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.ingest.files.conversion import converted
from server.ingest.files.regular_file import opened

_HEADER_BYTES = 64 * 1024  # of a file that are read at first
_DECODERS_MAX = 100  # that are kept; there is one for each writer's schema

_Sequences = list[bytes | memoryview]


class AvroFiles(ABC):
    """A format of files whose schema is fixed when the source first reads: the schemas of files are resolved to it."""

    needs_worker = False

    def __init__(self, given: Sequence[Column], schema: str | None) -> None:
        """`given`: the column list with types, or none. `schema`: that of USING SCHEMA. PgError if it is invalid."""
        self._given = tuple(given)
        self._defined = schema
        self._expected = self._given
        self.reader = schema
        """The text of the reader's schema; None until it is known, or if there is a column list."""
        if schema is not None:
            self._columns_of(schema)

    def resume(self, columns: Sequence[Column], schema: str | None) -> None:
        """Begins to read. `columns`: of the source. `schema`: the one that was stored, if there is one."""
        self._expected = tuple(columns)
        self.reader = schema or self._defined
        self._forget()

    def columns(self, sample: Path | None) -> tuple[Column, ...]:
        if self._given:
            return self._given
        schema = self._defined
        if schema is None and sample is not None:
            with opened(sample) as file:
                header = _header(file, sample)
            schema = header.schema if header is not None else None
        if schema is None:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "there is no Avro file with a header yet",
                hint="Write FORMAT AVRO USING SCHEMA '...', or the columns: CREATE SOURCE name (column type, ...).",
            )
        return self._columns_of(schema)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, position: int, bytes_max: int) -> tuple[list[pa.Table], int]:
        with opened(path) as file:
            header = _header(file, path)
            if header is None:
                return [], position
            try:
                try:
                    blocks, sequences, end = _blocks(file, header, position, bytes_max)
                except ContainerError:  # a writer may have replaced an incomplete block while it was read
                    blocks, sequences, end = _blocks(file, header, position, bytes_max)
            except ContainerError as error:
                raise _damaged(path, error) from None
        self._prepare(header, path)
        if not blocks:
            return [], max(position, header.size)  # a file that ends after its header is complete
        try:
            return self._tables(path, header, blocks, sequences), end
        except _BlockError as error:
            whole = error.index  # blocks before the invalid one
            if not whole:
                raise error.error from None
        return self._tables(path, header, blocks[:whole], sequences[:whole]), blocks[whole].offset

    def close(self) -> None:  # noqa: B027
        """Each read closes its file."""

    def _prepare(self, header: Header, path: Path) -> None:
        """Fixes the reader's schema, if it is not. PgError if it does not have the columns of the source."""
        if self.reader is None and not self._given:
            found = [(column.name, column.type) for column in self._columns_of(header.schema)]
            if [(column.name, column.type) for column in self._expected] != found:
                raise PgError(
                    SqlState.DATATYPE_MISMATCH,
                    f'schema of file "{path}" is not the one with which the source was created',
                    hint="Drop the source and create it again.",
                )
            self.reader = header.schema

    def _values(
        self, path: Path, type: Type, blocks: Sequence[Block], sequences: _Sequences
    ) -> tuple[pa.BinaryArray, list[int]]:
        """The values of blocks, and the number of the first value after each. _BlockError."""
        counts = [block.count for block in blocks]
        try:
            return split_sequences(type, sequences, counts), list(accumulate(counts))
        except SequenceError as error:
            reason = f"value {error.value + 1} of the block: {error.reason}"
            offset = blocks[error.index].offset
            raise _BlockError(error.index, _damaged(path, ContainerError(offset, reason))) from None

    @abstractmethod
    def _columns_of(self, schema: str) -> tuple[Column, ...]:
        """The columns of a reader's schema. PgError."""

    @abstractmethod
    def _tables(self, path: Path, header: Header, blocks: Sequence[Block], sequences: _Sequences) -> list[pa.Table]:
        """The rows of blocks, whose data is `sequences`. PgError, _BlockError."""

    @abstractmethod
    def _forget(self) -> None:
        """Drops the decoders, because the reader's schema may have changed."""


class AvroRows(AvroFiles):
    """Files whose values are rows."""

    def __init__(self, given: Sequence[Column], schema: str | None) -> None:
        self._decoders: dict[str, tuple[Type, Decoder]] = {}
        super().__init__(given, schema)

    def _forget(self) -> None:
        self._decoders.clear()

    def _columns_of(self, schema: str) -> tuple[Column, ...]:
        try:
            return _named_once([Column(c.name, c.meaning.type, c.nullable) for c in columns_of(parse_schema(schema))])
        except SchemaError as error:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, str(error), hint=SCHEMA_HINT) from None

    def _decoder(self, path: Path, writer: str) -> tuple[Type, Decoder]:
        """The decoder of files with a writer's schema, with its type. PgError if it does not match the reader's."""
        if writer not in self._decoders:
            try:
                type = parse_schema(writer)
                wanted = Wanted.all_of(type if self.reader is None else parse_schema(self.reader))
                if self._given:
                    names = {column.name for column in self._given}
                    own = {
                        field: tuple(c for c in columns if c.name in names)
                        for field, columns in wanted.fields.items()
                        if isinstance(columns, tuple)
                    }
                    wanted = Wanted({field: columns for field, columns in own.items() if columns})
                if len(self._decoders) >= _DECODERS_MAX:
                    self._decoders.clear()
                self._decoders[writer] = type, Decoder(type, wanted)
            except SchemaError as error:
                raise _mismatch(path, error) from None
        return self._decoders[writer]

    def _tables(self, path: Path, header: Header, blocks: Sequence[Block], sequences: _Sequences) -> list[pa.Table]:
        type, decoder = self._decoder(path, header.schema)
        values, ends = self._values(path, type, blocks, sequences)
        if not len(values):
            return []
        found = decoder.decode(values)
        if found.failed.any():
            row = int(np.flatnonzero(found.failed)[0])
            index, number = _in_blocks(row, ends)
            reason = decoder.reason(values[row].as_py(), found.wrong_fields.get(row))
            message = f'invalid value {number} in the block at byte {blocks[index].offset} of file "{path}": {reason}'
            raise _BlockError(index, PgError(SqlState.BAD_COPY_FILE_FORMAT, message))
        if self._given:
            rows = pa.table({name: array for (name,), array in found.columns.items()})

            def place(row: int) -> str:
                index, number = _in_blocks(row, ends)
                return f"value {number} in the block at byte {blocks[index].offset}"

            return [converted(rows, self._given, path, place)]
        arrays = [found.columns[(column.name,)] for column in self._expected]
        return [pa.table(arrays, [f"c{number}" for number in range(len(arrays))])]


class AvroMessages(AvroFiles):
    """Files whose values are CDCv2 messages: rows of one binary column, which `decode` decodes."""

    def __init__(self, given: Sequence[Column], schema: str | None) -> None:
        self._decoders: dict[str, tuple[Type, AvroDecoder]] = {}
        self._decoder: AvroDecoder | None = None  # for the file that was read last
        self._path: Path | None = None  # of that file
        self._parsed: dict[int, PgType] = {}
        super().__init__(given, schema)
        if self._given:
            types = [parse_type(column.type) for column in self._given]
            # Otherwise the decoder would return json in the normal form of jsonb.
            avro = [parse_type("text") if type.name == "json" else type for type in types]
            own = [EncodedColumn(c.name, type, c.nullable) for c, type in zip(self._given, avro, strict=True)]
            try:
                self._defined = self.reader = schema_text(own)
            except ValueError as error:
                raise PgError(SqlState.INVALID_NAME, str(error)) from None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the updates that `decode` returns."""
        own = (pa.field(f"c{i}", parse_type(column.type).arrow) for i, column in enumerate(self._expected))
        return pa.schema([*own, TIME_FIELD, DIFF_FIELD])

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decodes messages of the file that was read last. PgError if a value is out of range for its column."""
        if self._decoder is None:
            return Decoded(self.schema.empty_table(), [], np.zeros(0, np.bool_), lambda row: "")
        found = self._decoder.decode(messages)
        if not self._parsed and found.updates.schema.equals(self.schema):
            return found
        return Decoded(self._converted(found.updates), found.statements, found.failed, found.reason)

    def _converted(self, updates: pa.Table) -> pa.Table:
        """The updates with the types of the columns. PgError"""
        for position, type in self._parsed.items():
            try:
                values = parse_text_column(type, updates[position].combine_chunks())
            except BadValue as wrong:
                name, error = self._expected[position].name, wrong.error
                message = f'file "{self._path}" has an invalid value in column "{name}": {error.message}'
                raise PgError(error.sqlstate, message, detail=error.detail) from None
            updates = updates.set_column(position, self.schema.field(position), values)
        try:
            return updates.cast(self.schema)
        except pa.ArrowInvalid as error:
            reason = str(error).partition("\n")[0]
            message = f'file "{self._path}" has a value that is out of range for its column: {reason}'
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message) from None

    def _forget(self) -> None:
        self._decoders.clear()
        self._decoder = None
        self._parsed = {}
        if self._given and self.reader is not None:
            types = zip(self._given, self._columns_of(self.reader), strict=True)
            found = [(parse_type(column.type), in_avro.type) for column, in_avro in types]
            self._parsed = {at: type for at, (type, avro) in enumerate(found) if avro == "text" and _is_parsed(type)}

    def _columns_of(self, schema: str) -> tuple[Column, ...]:
        try:
            columns = CdcSchema.of(parse_schema(schema)).columns()
        except SchemaError as error:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, str(error), hint=SCHEMA_HINT) from None
        return _named_once([Column(c.name, c.meaning.type, c.nullable) for c in columns])

    def _tables(self, path: Path, header: Header, blocks: Sequence[Block], sequences: _Sequences) -> list[pa.Table]:
        assert self.reader is not None
        if header.schema not in self._decoders:
            try:
                writer = parse_schema(header.schema)
                decoder = AvroDecoder(CdcSchema.of(writer), CdcSchema.of(parse_schema(self.reader)))
            except SchemaError as error:
                raise _mismatch(path, error) from None
            if len(self._decoders) >= _DECODERS_MAX:
                self._decoders.clear()
            self._decoders[header.schema] = writer, decoder
        type, self._decoder = self._decoders[header.schema]
        self._path = path
        messages, _ = self._values(path, type, blocks, sequences)
        return [pa.table([messages], ["c0"])] if len(messages) else []


def _is_parsed(type: PgType) -> bool:
    """Whether values of a type are parsed from the text in Avro: they have another type in Arrow, or must be JSON."""
    return type.name == "json" or not pa.types.is_string(type.arrow)


class _BlockError(Exception):
    """Block `index` of those that were read is invalid, for the reason in `error`."""

    def __init__(self, index: int, error: PgError) -> None:
        super().__init__(error.message)
        self.index, self.error = index, error


def _in_blocks(row: int, ends: Sequence[int]) -> tuple[int, int]:
    """The index of a row's block, and the number of the row in it, from 1. `ends`: the first row after each block."""
    index = int(np.searchsorted(ends, row, "right"))
    return index, row - (ends[index - 1] if index else 0) + 1


def _header(file: BinaryIO, path: Path) -> Header | None:
    """The header of a file; None if it is not complete. PgError."""
    wanted = _HEADER_BYTES
    while True:
        file.seek(0)
        data = file.read(wanted)
        try:
            header = parse_header(data)
        except ContainerError as error:
            raise _damaged(path, error) from None
        if header is not None or len(data) < wanted:
            break
        wanted = min(2 * wanted, HEADER_BYTES_MAX + SYNC_BYTES)
    if header is not None and header.codec not in supported_codecs():
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'codec {header.codec} of file "{path}" is not supported',
            hint=f"The codecs are {', '.join(supported_codecs())}.",
        )
    return header


def _blocks(file: BinaryIO, header: Header, position: int, bytes_max: int) -> tuple[list[Block], _Sequences, int]:
    """The next complete blocks with their decoded data, and the position after them. ContainerError."""
    start = max(position, header.size)
    file.seek(start - SYNC_BYTES)
    before = file.read(SYNC_BYTES)
    if before != header.sync:
        raise ContainerError(start, "no block ends there, although the file was read up to there")
    split = _split(file, start, max(bytes_max, 1), header.sync)
    found: list[Block] = []
    sequences: _Sequences = []
    size, end = 0, position
    for block in split.blocks:
        try:
            data = decoded_block(block, header.codec)
        except ContainerError:
            if found:
                break
            raise
        found.append(block)
        sequences.append(data)
        end = block.end
        size += max(len(data), block.count)  # a value may have no bytes
        if size >= bytes_max:
            break
    return found, sequences, end


def _split(file: BinaryIO, start: int, bytes_max: int, sync: bytes) -> Blocks:
    """The complete blocks in the next `bytes_max` bytes, or the next one if it is larger."""
    data = file.read(bytes_max)
    found = split_blocks(data, start, sync)
    if not found.blocks and len(data) == bytes_max:
        file.seek(start)
        wanted = max(found.wanted, bytes_max + _HEADER_BYTES)
        found = split_blocks(file.read(wanted), start, sync)
        if not found.blocks and found.wanted > wanted:
            file.seek(start)
            found = split_blocks(file.read(found.wanted), start, sync)
    return found


def _named_once(columns: list[Column]) -> tuple[Column, ...]:
    """PgError if there are no columns, or two with one name."""
    if not columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "schema has no fields",
            hint="Write the files with a record that has at least one field.",
        )
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise PgError(SqlState.DUPLICATE_COLUMN, f'column "{column.name}" specified more than once')
        seen.add(column.name)
    return tuple(columns)


def _damaged(path: Path, error: ContainerError) -> PgError:
    state = SqlState.PROGRAM_LIMIT_EXCEEDED if isinstance(error, ContainerLimitError) else SqlState.DATA_CORRUPTED
    return PgError(state, f'file "{path}" cannot be read at byte {error.offset}: {error.reason}')


def _mismatch(path: Path, error: SchemaError) -> PgError:
    return PgError(SqlState.DATATYPE_MISMATCH, f'file "{path}" does not match the source: {error}')
