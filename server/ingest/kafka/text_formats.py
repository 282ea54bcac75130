"""FORMAT TEXT, BYTES, JSON and CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from protocol.avro.decoder import Path
from protocol.pgwire.errors import PgError
from protocol.pgwire.json_values import parse_jsonb
from server.ingest.kafka.avro_format import Part, original


@dataclass(frozen=True)
class BytesFormat:
    """Messages unchanged, in one column."""

    path: Path
    holds_lock = False

    async def decoder(self, data: pa.BinaryArray) -> BytesFormat:
        return self

    def decode(self, data: pa.BinaryArray) -> Part:
        return Part({self.path: data}, np.zeros(len(data), np.bool_), lambda row: "")


class _OneByOne:
    """A format whose messages are decoded one by one: `_value` returns the columns of a message, or raises _Invalid."""

    paths: tuple[Path, ...]
    name: str
    holds_lock = True

    async def decoder(self, data: pa.BinaryArray) -> _OneByOne:
        return self

    def decode(self, data: pa.BinaryArray) -> Part:
        failed = np.zeros(len(data), np.bool_)
        found: list[tuple[str | None, ...]] = []
        nothing = (None,) * len(self.paths)
        for row, message in enumerate(data.to_pylist()):
            try:
                found.append(nothing if message is None else self._value(message))
            except (_Invalid, UnicodeDecodeError):
                failed[row] = True
                found.append(nothing)

        def reason(row: int) -> str:
            message = data[row].as_py()
            try:
                self._value(message)
            except (_Invalid, UnicodeDecodeError) as error:
                return f"{self.name}: {error} {original(message)}"
            raise AssertionError(row)

        columns = zip(*found, strict=True) if found else ((),) * len(self.paths)
        arrays = {path: pa.array(column, pa.string()) for path, column in zip(self.paths, columns, strict=True)}
        return Part(arrays, failed, reason)

    def _value(self, message: bytes) -> tuple[str | None, ...]:
        raise NotImplementedError


class _Invalid(Exception):
    """A message that is not of the format."""


class TextFormat(_OneByOne):
    """UTF-8 text in one column."""

    name = "Text"

    def __init__(self, path: Path) -> None:
        self.paths = (path,)

    def _value(self, message: bytes) -> tuple[str | None, ...]:
        text = message.decode()
        if "\0" in text:
            raise _Invalid('invalid byte sequence for encoding "UTF8": 0x00')
        return (text,)


class JsonFormat(_OneByOne):
    """JSON in one column of type jsonb."""

    name = "Failed to decode JSON"

    def __init__(self, path: Path) -> None:
        self.paths = (path,)

    def _value(self, message: bytes) -> tuple[str | None, ...]:
        try:
            return (parse_jsonb(message.decode()),)
        except PgError as error:
            raise _Invalid(error.detail or error.message) from None


class CsvFormat(_OneByOne):
    """One CSV record per message, in columns of type text."""

    name = "CSV error"

    def __init__(self, paths: tuple[Path, ...], delimiter: str = ",") -> None:
        self.paths = paths
        self._delimiter = delimiter

    def _value(self, message: bytes) -> tuple[str | None, ...]:
        text = message.decode()
        if "\0" in text:
            raise _Invalid('invalid byte sequence for encoding "UTF8": 0x00')
        try:
            records: list[Any] = list(
                csv.reader(text.splitlines(keepends=True), delimiter=self._delimiter, strict=True)
            )
        except csv.Error as error:
            raise _Invalid(str(error)) from None
        fields = records[0] if len(records) == 1 else [] if not records else None
        if fields is None:
            raise _Invalid(f"expected one record, got {len(records)}")
        if len(fields) != len(self.paths):
            raise _Invalid(f"expected {len(self.paths)} columns, got {len(fields)}")
        return tuple(fields)
