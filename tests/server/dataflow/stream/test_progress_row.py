"""Progress rows from the bytes of an earlier one equal rows that are encoded by themselves."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.encode import BINARY_FORMAT, TEXT_FORMAT, CopyEncoder, RowEncoder
from protocol.pgwire.types import FLOAT8, INT4, TEXT
from server.dataflow.stream.encoding import Encode
from server.dataflow.stream.envelope import DiffEnvelope, KeyedEnvelope
from server.dataflow.stream.progress_row import ProgressRow
from server.dataflow.stream.subscription import Progress
from server.session_state.sender import encode_table
from server.sql.plan import Field
from tests.examples import examples

RELATION = (Field("k", INT4, True), Field("v", TEXT, True), Field("w", FLOAT8, False))
DIFFS = DiffEnvelope(RELATION, progress=True)
UPSERT = KeyedEnvelope(RELATION, (0,), before=False, progress=True)
FORMATS = {
    "copy text": lambda types: CopyEncoder(types, CopyOptions()).encode_rows,
    "copy csv": lambda types: CopyEncoder(types, CopyOptions.csv(null="1")).encode_rows,
    "copy binary": lambda types: CopyEncoder(types, CopyOptions.binary()).encode_rows,
    "text": lambda types: RowEncoder(types, [TEXT_FORMAT] * len(types)).encode,
    "binary": lambda types: RowEncoder(types, [BINARY_FORMAT] * len(types)).encode,
}


def encode(name: str, envelope: DiffEnvelope | KeyedEnvelope) -> Encode:
    return encode_table(FORMATS[name]([field.type for field in envelope.fields]))


@pytest.mark.parametrize("envelope", [DIFFS, UPSERT], ids=["diffs", "upsert"])
@pytest.mark.parametrize("name", FORMATS)
@examples(30)
@given(times=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 20)), max_size=3))
def test_rows_equal_encoded_rows(name: str, envelope: DiffEnvelope | KeyedEnvelope, times: list[int]) -> None:
    encoding = encode(name, envelope)
    row = ProgressRow(envelope, encoding)
    for time in [*times, *(time // 2 for time in times)]:
        assert asyncio.run(row.encoded(time)) == encoding(asyncio.run(envelope.rows(Progress(time))))


def test_later_rows_are_not_encoded() -> None:
    calls = []

    def counted(table: object) -> bytes:
        calls.append(table)
        return encode("copy text", DIFFS)(table)

    row = ProgressRow(DIFFS, counted)
    for time in (1_700_000_000_000, 1_700_000_000_001):
        assert asyncio.run(row.encoded(time)).startswith(b"d\0\0\0")
    assert len(calls) == 1


def test_an_envelope_without_progress_has_no_rows() -> None:
    assert asyncio.run(ProgressRow(DiffEnvelope(RELATION, progress=False), bytes).encoded(7)) == b""
