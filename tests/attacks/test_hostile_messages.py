"""Files of sources whose schemas, lengths, counts and nesting are the attacker's choice: Avro, CDCv2, JSON, Parquet."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.avro.container import encoded_header
from protocol.avro.encoder import EncodedColumn
from protocol.avro.varints import varint_bytes
from protocol.cdcv2.avro_form import schema_text
from protocol.pgwire.types import parse_type
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.attacks.test_sources import drop, status
from tests.fix_server import ServerProcess
from tests.polling import until

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
GROWTH_MAX = 512 * MIB
SYNC = bytes(16)
POLL = "(POLL INTERVAL '20ms')"
CDC = schema_text([EncodedColumn("n", parse_type("int8"), False), EncodedColumn("t", parse_type("text"))])


@pytest.fixture
def sql(own_server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")
        yield connection
        connection.execute("DROP SOURCE IF EXISTS s")


@contextmanager
def bounded(server: ServerProcess) -> Iterator[None]:
    """Fails if other sessions wait, or if the server has GROWTH_MAX more at any time in the block."""
    before, greatest = resident_bytes(server.process.pid), 0

    def sample(done: threading.Event) -> None:
        nonlocal greatest
        while not done.wait(0.02):
            greatest = max(greatest, resident_bytes(server.process.pid))

    with watched(server), meanwhile(sample):
        yield
    assert greatest - before < GROWTH_MAX, f"{(greatest - before) / MIB:.0f} MiB"


# -- schemas ----------------------------------------------------------------------------------------------------------


def record(*fields: object, name: str = "r", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(number: int, type: object = "int") -> dict[str, object]:
    return {"name": f"f{number}", "type": type}


def nested(depth: int, *, records: bool) -> str:
    """The text of a type in a type in a type..."""
    if records:
        begin = "".join(f'{{"type":"record","name":"r{n}","fields":[{{"name":"f","type":' for n in range(depth))
        return begin + '"int"' + "}]}" * depth
    return json.dumps(record(field(0)))[:-3] + ', "x": ' + "[" * depth + "]" * depth + "}]}"


def doubled(levels: int) -> str:
    """A record that contains each earlier one twice: exponentially many values, and columns."""
    inner: object = record(field(0), name="r0")
    for level in range(1, levels):
        inner = record(field(0, inner), field(1, f"r{level - 1}"), name=f"r{level}")
    return json.dumps(inner)


def cdc(data: str) -> str:
    """The schema of CDCv2 messages whose data has this schema."""
    schema = json.loads(CDC)
    schema[0]["items"]["fields"][0]["type"] = "DATA"
    return json.dumps(schema).replace('"DATA"', data)


SCHEMAS: dict[str, Callable[[], str]] = {  # made by the test: all tests are collected together
    "a hundred thousand fields": lambda: json.dumps(record(*map(field, range(100_000)))),
    "a description of ten megabytes": lambda: json.dumps(record(field(0), doc="x" * (10 * MIB))),
    "a name of ten megabytes": lambda: json.dumps(record({"name": "f" * (10 * MIB), "type": "int"})),
    "a thousand records in each other": lambda: nested(1_000, records=True),
    "a hundred thousand arrays in a property": lambda: nested(100_000, records=False),
    "arrays of arrays": lambda: '{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000,
    "a union of many": lambda: json.dumps(record(field(0, [record(field(0), name=f"u{n}") for n in range(50_000)]))),
    "a million symbols": lambda: json.dumps(
        record(field(0, {"type": "enum", "name": "e", "symbols": [f"s{n}" for n in range(1_000_000)]}))
    ),
    "each record twice": lambda: doubled(60),
    "itself": lambda: json.dumps(record(field(0, ["null", "r"]))),
    "a fixed of two gigabytes": lambda: json.dumps(record(field(0, {"type": "fixed", "name": "x", "size": 2**31 - 1}))),
    "a fixed of negative size": lambda: json.dumps(record(field(0, {"type": "fixed", "name": "x", "size": -1}))),
    "a decimal of many digits": lambda: json.dumps(
        record(field(0, {"type": "bytes", "logicalType": "decimal", "precision": 2**40, "scale": 2**39}))
    ),
    "the same names": lambda: json.dumps(record(*[field(0)] * 1_000)),
}


@pytest.mark.parametrize("envelope", ["", "ENVELOPE MATERIALIZE"], ids=["rows", "changes"])
@pytest.mark.parametrize("make", SCHEMAS.values(), ids=SCHEMAS)
def test_schemas(
    own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, make: Callable[[], str], envelope: str
) -> None:
    """In the header of a file, and in the statement. A source with a column whose values are never there may exist."""
    schema = cdc(make()) if envelope else make()
    file = tmp_path / "hostile.avro"
    file.write_bytes(encoded_header(schema, SYNC))
    with bounded(own_server):
        for using in ("", f"USING SCHEMA '{schema}'"):
            refused = None
            try:
                sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT AVRO {using} {envelope}".encode())
                until(lambda: status(sql)[0] != "starting")
                drop(sql)
            except psycopg.Error as error:
                refused = error
            assert refused is None or refused.sqlstate not in ("XX000", "57014"), refused
            assert len(str(refused)) < 10_000


# -- values -----------------------------------------------------------------------------------------------------------

ARRAY, PROGRESS = varint_bytes(0), varint_bytes(1)
LEAST, GREATEST = -(2**63), 2**63 - 1
UPDATE = varint_bytes(1) + varint_bytes(1, 1) + b"x" + varint_bytes(5, 1)  # n, t, time, diff

VALUES = {
    "the least count": ARRAY + varint_bytes(LEAST, 10) + UPDATE,
    "the greatest count": ARRAY + varint_bytes(GREATEST) + UPDATE,
    "a negative size": ARRAY + varint_bytes(-1, -5) + UPDATE + varint_bytes(0),
    "the least size": ARRAY + varint_bytes(-1, LEAST) + UPDATE + varint_bytes(0),
    "the greatest size": ARRAY + varint_bytes(-1, GREATEST) + UPDATE + varint_bytes(0),
    "a size of nothing": ARRAY + varint_bytes(-1_000_000, 0) + varint_bytes(0),
    "a size that is too small": ARRAY + varint_bytes(-2, len(UPDATE)) + UPDATE * 2 + varint_bytes(0),
    "a million blocks": ARRAY + (varint_bytes(-1, len(UPDATE)) + UPDATE) * 1_000_000 + varint_bytes(0),
    "a million empty blocks": ARRAY + varint_bytes(-1, 0) * 1_000_000 + varint_bytes(0),
    "a text of negative size": ARRAY + varint_bytes(1, 1, 1, LEAST),
    "a text of the greatest size": ARRAY + varint_bytes(1, 1, 1, GREATEST),
    "another branch": varint_bytes(GREATEST),
    "a varint without an end": b"\xff" * 1_000,
    "a million times": PROGRESS + varint_bytes(1_000_000) + b"\2" * 1_000_000 + varint_bytes(0, 1, 9, 0, 0),
    "more times than bytes": PROGRESS + varint_bytes(2**40) + b"\2" * 100,
    "counts of all times": PROGRESS + varint_bytes(1, 0, 0, 1, GREATEST, 0, 1, 1, GREATEST, 0),
    "negative counts": PROGRESS + varint_bytes(1, 0, 0, 1, 9, 0, 1, 1, LEAST, 0),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_of_avro(own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, value: bytes) -> None:
    """The file ends with the status of its source, or the value is counted as invalid."""
    file = tmp_path / "hostile.avro"
    file.write_bytes(encoded_header(CDC, SYNC) + varint_bytes(1, len(value)) + value + SYNC)
    with bounded(own_server):
        sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT AVRO ENVELOPE MATERIALIZE".encode())
        until(lambda: is_judged(sql), 120)
        drop(sql)


def is_judged(sql: psycopg.Connection[Any]) -> bool:
    """Whether the source has failed, or has read something."""
    if status(sql)[0] in ("failed", "stalled"):
        assert len(status(sql)[1]) < 10_000
        return True
    return sql.execute("SELECT messages_received FROM mz_internal.mz_source_statistics").fetchall() != [(0,)]


BLOCKS = {
    "the greatest count": varint_bytes(10_000_000, 1) + b"\0" + SYNC,
    "a negative count": varint_bytes(LEAST, 1) + b"\0" + SYNC,
    "a negative size": varint_bytes(1, LEAST) + SYNC,
    "the greatest size": varint_bytes(1, GREATEST) + SYNC,
    "a size of more than the file": varint_bytes(1, 250 * MIB) + SYNC,
    "no end": b"\xff" * 100,
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_blocks_of_avro(own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, block: bytes) -> None:
    file = tmp_path / "hostile.avro"
    file.write_bytes(encoded_header(json.dumps(record(field(0), field(1, "string"))), SYNC) + block)
    with bounded(own_server):
        sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT AVRO".encode())
        until(lambda: status(sql)[0] != "starting")
        drop(sql)


def many_equal_texts() -> pa.Table:
    """A dictionary with one text of a megabyte, and a million rows that refer to it."""
    indices = pa.array(np.zeros(1_000_000, np.int32))
    return pa.table({"t": pa.DictionaryArray.from_arrays(indices, ["x" * MIB])})


def long_text() -> pa.Table:
    return pa.table({"t": ["x" * (300 * MIB)]})


@pytest.mark.long
@pytest.mark.parametrize("rows", [many_equal_texts, long_text])
def test_pages_of_parquet(
    own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, rows: Callable[[], pa.Table]
) -> None:
    """Files of a few kilobytes with rows of many gigabytes."""
    file = tmp_path / "hostile.parquet"
    is_dictionary = rows is many_equal_texts
    pq.write_table(rows(), file, compression="zstd", use_dictionary=is_dictionary, store_schema=False)
    assert file.stat().st_size < MIB
    with bounded(own_server):
        sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT PARQUET".encode())
        until(lambda: status(sql)[0] == "failed", 120)
        assert status(sql)[1] == f'could not read file "{file}": out of memory'
        drop(sql)


@pytest.mark.parametrize("size", [8, 1_000_000])
def test_metadata_of_parquet(
    own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, size: int
) -> None:
    """A list of 2^31 - 1 columns, and what follows it."""
    metadata = b"\x15\x02\x19\xfc" + b"\xff\xff\xff\xff\x07" + b"\x48\x01x\x00" * (size // 4)
    file = tmp_path / "hostile.parquet"
    file.write_bytes(b"PAR1" + metadata + struct.pack("<i", len(metadata)) + b"PAR1")
    with bounded(own_server):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="deserialize thrift"):
            sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT PARQUET".encode())
        sql.execute(f"CREATE SOURCE s (t text) FROM FILE '{file}' {POLL} FORMAT PARQUET".encode())
        until(lambda: status(sql)[0] in ("failed", "stalled"))
        drop(sql)


def line(data: str, time: str = "5", diff: str = "1") -> str:
    return f'{{"array": [{{"data": {data}, "time": {time}, "diff": {diff}}}]}}'


LINES = {
    "a hundred thousand arrays": line('{"n": 1, "j": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a hundred thousand objects": line('{"n": 1, "j": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}"),
    "arrays without an end": "[" * 10_000_000,
    "a nested time": line('{"n": 1}', time="[" * 100_000 + "]" * 100_000),
    "a million digits": line('{"n": ' + "9" * 1_000_000 + "}"),
    "a time of a million digits": line('{"n": 1}', time="9" * 1_000_000),
    "a large exponent": line('{"n": 1e1000000000}'),
    "a time with a large exponent": line('{"n": 1}', time="1e1000000000"),
    "numbers with large exponents": line('{"n": 1, "j": [' + "1e131071," * 100_000 + "1]}"),
    "numbers with exponents": line('{"n": 1, "j": [' + "1e999," * 100_000 + "1]}"),
    "many members": line('{"n": 1, ' + ",".join(f'"m{n}": 1' for n in range(100_000)) + "}"),
    "many equal members": line('{"n": 1, ' + ",".join(['"m": 1'] * 200_000) + "}"),
    "many updates": '{"array": [' + ",".join(['{"data": {"n": 1}, "time": 5, "diff": 1}'] * 50_000) + "]}",
    "a million empty updates": '{"array": [' + ",".join(["{}"] * 1_000_000) + "]}",
    "half a character": line('{"n": 1, "j": "\\ud800"}'),
    "an empty character": line('{"n": 1, "j": "\\u0000"}'),
    "many times": '{"com.materialize.cdc.progress": {"lower": [0], "upper": [9], "counts": ['
    + ",".join(f'{{"time": {n}, "count": 1}}' for n in range(20_000))
    + "]}}",
    "all times": '{"com.materialize.cdc.progress": {"lower": [0], "upper": [9223372036854775807], "counts": []}}',
    "the greatest time": line('{"n": 1}', time="9223372036854775807"),
    "the greatest diff": line('{"n": 1}', diff="9223372036854775807")
    + "\n"
    + line('{"n": 1}', diff="9223372036854775807"),
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_lines_of_json(own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, text: str) -> None:
    file = tmp_path / "hostile.json"
    file.write_text(f"{text}\n" * 4)
    with bounded(own_server):
        columns = "(n int8, j jsonb)"
        sql.execute(f"CREATE SOURCE s {columns} FROM FILE '{file}' {POLL} FORMAT JSON ENVELOPE MATERIALIZE".encode())
        until(lambda: is_judged(sql), 120)
        drop(sql)
        sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT JSON".encode())
        until(lambda: is_judged(sql), 120)
        drop(sql)


ROWS = {
    "a hundred thousand arrays": '{"n": 1, "j": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a hundred thousand objects": '{"n": 1, "j": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    "many elements": '{"n": 1, "j": [' + ",".join(["{}"] * 300_000) + "]}",
    "many equal members": '{"n": 1, ' + ",".join(['"m": 1'] * 200_000) + "}",
    "numbers with exponents": '{"n": 1, "j": [' + "1e999," * 10_000 + "1]}",
    "half a character": '{"n": 1, "j": "\\ud800"}',
    "another type": '{"n": "x"}',
}


@pytest.mark.parametrize("envelope", ["UPSERT", "DEBEZIUM"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_lines_of_rows(
    own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path, row: str, envelope: str
) -> None:
    """Other sessions do not wait for lines, whether they can be decoded or not."""
    file = tmp_path / "hostile.json"
    value = row if envelope == "UPSERT" else f'{{"after": {row}}}'
    file.write_text(f'{{"key": {{"n": 1}}, "value": {value}}}\n' * 4 + '{"frontier":[9]}\n')
    with bounded(own_server):
        create = f"CREATE SOURCE s (n int8, j jsonb) FROM FILE '{file}' {POLL} FORMAT JSON ENVELOPE {envelope}"
        sql.execute(create.encode())
        committed = b"SELECT updates_committed FROM mz_internal.mz_source_statistics"
        until(lambda: status(sql)[0] in ("failed", "stalled") or sql.execute(committed).fetchall() != [(0,)], 120)
        drop(sql)


@pytest.mark.long
def test_lines_with_a_million_counts(own_server: ServerProcess, sql: psycopg.Connection[Any], tmp_path: Path) -> None:
    """Arrow refuses the last count, so that Python parses all of them."""
    counts = ",".join(f'{{"time": {n}, "count": 1}}' for n in range(1_000_000))
    line = f'{{"com.materialize.cdc.progress": {{"lower": [0], "upper": [9], "counts": [{counts}, {{}}]}}}}\n'
    file = tmp_path / "hostile.json"
    file.write_text(line * 4)
    with bounded(own_server):
        create = f"CREATE SOURCE s (n int8) FROM FILE '{file}' {POLL} FORMAT JSON ENVELOPE MATERIALIZE"
        sql.execute(create.encode())
        statistics = "SELECT invalid_messages, last_invalid_message FROM mz_internal.mz_source_statistics"
        until(lambda: sql.execute(statistics.encode()).fetchall()[0][0] == 4, 240)
        (_, last) = sql.execute(statistics.encode()).fetchone() or (0, "")
        assert last.startswith(f'file "{file}" after byte ')
        drop(sql)
