"""The JSON encoder, compared with a row-by-row equivalent over Python's json module."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given

from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.json_rows import JsonEncoder
from protocol.pgwire.types import INT2VECTOR, OIDVECTOR, PgType, parse_type
from tests.examples import examples
from tests.protocol import columns, plain_encoder
from tests.protocol.test_encode import STYLES, Batch

CALM = examples(80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def plain(type: PgType, value: Any, style: OutputStyle) -> Any:
    if value is None:
        return None
    if type.element is not None and type not in (INT2VECTOR, OIDVECTOR):
        return [plain(type.item, item, style) for item in value]
    if type.name == "bool":
        return bool(value)
    if type.name in ("int2", "int4", "oid"):
        return int(value)
    text = plain_encoder.text(type, value, style)
    if type.name in ("json", "jsonb"):
        return json.loads(text)
    if type.name in ("float4", "float8") and math.isfinite(value):
        return float(text)
    return text


@CALM
@given(columns.batches(), STYLES)
def test_rows_equal_the_plain_encoder(batch: Batch, style: OutputStyle) -> None:
    types, rows, arrow = batch
    encoded = b",".join(JsonEncoder(types, style).encode(arrow))
    assert b"\n" not in encoded
    assert b"\r" not in encoded
    expected = [[plain(type, value, style) for type, value in zip(types, row, strict=True)] for row in rows]
    assert json.loads(b"[" + encoded + b"]") == expected


@pytest.mark.parametrize(
    ("spelling", "values", "expected"),
    [
        ("text", ['"', "\\", "\n\r\t\b\f", "\x00\x01\x1f\x7f", "é\u2028😀", "</script>", "", None], None),
        ("jsonb", ['{"a": [1, "x\\n"]}', "null", None], [{"a": [1, "x\n"]}, None, None]),
        ("json", ['{\n"a"\r\n:1}'], [{"a": 1}]),
        ("float8", [1.5, float("nan"), float("inf"), float("-inf"), -0.0, 1e300, None], None),
        ("int8", [2**63 - 1, -1], [str(2**63 - 1), "-1"]),
        ("int4[]", [[1, None], [], None], [[1, None], [], None]),
        ("text[]", [['a"b', None], ["{}"]], [['a"b', None], ["{}"]]),
        ("jsonb[]", [['{"a": 1}']], [[{"a": 1}]]),
    ],
)
def test_values_are_encoded_as_documented(spelling: str, values: list[Any], expected: list[Any] | None) -> None:
    type = parse_type(spelling)
    array = pa.array(values, type.arrow)
    encoded = b",".join(JsonEncoder([type]).encode(pa.record_batch([array], ["c"])))
    wanted = expected
    if wanted is None:
        special = {math.inf: "Infinity", -math.inf: "-Infinity"}
        wanted = ["NaN" if value != value else special.get(value, value) for value in values]
    assert json.loads(b"[" + encoded + b"]") == [[value] for value in wanted]
    assert b"\n" not in encoded


def test_numbers_and_rows_without_columns() -> None:
    int8 = parse_type("int8")
    batch = pa.record_batch([pa.array([1, 2], pa.int64())], ["c"])
    assert JsonEncoder([int8], numbers=[0]).encode(batch) == [b"[1],[2]"]
    assert JsonEncoder([int8]).encode(batch.slice(0, 0)) == []
    empty = pa.table([pa.array([1, 2])], ["c"]).select([]).to_batches()
    assert JsonEncoder([]).encode(empty[0]) == [b"[],[]"]
