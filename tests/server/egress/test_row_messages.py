"""Keys and values of messages, compared with fastavro and json row by row."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from server.egress.kafka.schemas import key_columns, key_schema, value_schema
from server.egress.net_changes import NONE, Pairs
from server.egress.row_messages import AvroForm, Encoder, JsonForm, RecordForm
from server.egress.sink_kind import SinkDefinition
from tests.examples import examples

COLUMNS = (Column("n", "int8", nullable=False), Column("v", "text"), Column("b", "bool"))
PREFIX = b"\0\0\0\0\7"
Row = tuple[int, str | None, bool | None]
row = st.tuples(
    st.integers(-(2**62), 2**62), st.none() | st.text(st.characters(codec="utf-8")), st.none() | st.booleans()
)
images = st.lists(st.tuples(st.none() | row, st.none() | row).filter(any), min_size=1, max_size=8)


def definition(envelope: Envelope) -> SinkDefinition:
    format = Format(Encoding("avro", ObjectId("u1")), envelope=envelope)
    return SinkDefinition("s", "t", COLUMNS, options={"topic": "x"}, format=format, key=("v", "n"))


def as_avro(value: dict[str, Any], schema: str) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), value)
    return PREFIX + stream.getvalue()


def record(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip(("n", "v", "b"), row, strict=True))


@pytest.mark.parametrize("envelope", [Envelope.UPSERT, Envelope.DEBEZIUM])
@pytest.mark.parametrize("format", ["avro", "json"])
@examples(25)
@given(pairs=images)
def test_messages_are_those_of_single_rows(
    envelope: Envelope, format: str, pairs: list[tuple[Row | None, Row | None]]
) -> None:
    sink = definition(envelope)
    rows: list[Row] = [row for pair in pairs for row in pair if row is not None]
    numbers = iter(range(len(rows)))
    before, after = zip(*([NONE if r is None else next(numbers) for r in pair] for pair in pairs), strict=True)
    table = pa.table(
        [pa.array([row[i] for row in rows], type) for i, type in enumerate((pa.int64(), pa.string(), pa.bool_()))],
        ["c0", "c1", "c2"],
    )
    forms: list[RecordForm] = [
        AvroForm(columns, PREFIX) if format == "avro" else JsonForm(columns)
        for columns in (key_columns(sink), sink.encoded_columns)
    ]
    encoder = Encoder(envelope, sink.key_positions, forms[0], forms[1])
    found = Pairs(*(pa.array(numbers, pa.int64()).to_numpy() for numbers in (before, after, range(len(pairs)))))
    keys, values = encoder.keys(table, found), encoder.values(table, found)
    assert keys is not None
    for (old, new), key, value in zip(pairs, keys.to_pylist(), values.to_pylist(), strict=True):
        some = new or old
        assert some is not None
        wanted_key = {"v": some[1], "n": some[0]}
        wanted: dict[str, Any] | None = record(new)
        if envelope is Envelope.DEBEZIUM:
            wanted = {"before": record(old), "after": record(new)}
        if format == "json":
            assert json.loads(key) == wanted_key
            assert (None if value is None else json.loads(value)) == wanted
        else:
            assert key == as_avro(wanted_key, key_schema(sink))
            assert value == (None if wanted is None else as_avro(wanted, value_schema(sink)))
