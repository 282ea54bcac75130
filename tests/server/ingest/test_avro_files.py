"""Sources from Avro container files: each value once, over restarts at any point, while files grow and appear."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro import container
from protocol.avro.container import encoded_block, encoded_header, parse_header
from protocol.avro.encoder import EncodedColumn
from protocol.avro.varints import varint_bytes
from protocol.cdcv2.avro_form import schema_text
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.ingest.files import avro_files
from server.ingest.files.avro_files import AvroRows
from server.ingest.files.file_source import FileSource
from server.ingest.source_definition import SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from tests.examples import examples
from tests.protocol.avro.test_container import SYNC, written
from tests.protocol.avro.test_decoder import decoded, encoded, record, schemas_and_values
from tests.protocol.avro.test_decoder import rows as decoded_rows
from tests.server.ingest.test_files import ID, changes_after, definition, rows_of, upstream_of

ROW = record("long", ["null", "string"])
VALUES = [{"f0": n, "f1": None if n % 3 == 0 else f"v{n}"} for n in range(100)]
AS_ROWS = [(value["f0"], value["f1"]) for value in VALUES]


def blocks_of(schema: Any, values: Sequence[Any], size: int = 10) -> bytes:
    """A file with `size` values in each block."""
    messages = encoded(schema, values)
    blocks = [encoded_block(messages[at : at + size], SYNC) for at in range(0, len(messages), size)]
    return b"".join([encoded_header(json.dumps(schema), SYNC), *blocks])


@examples(50)
@given(schemas_and_values(), st.integers(1, 200), st.sampled_from(["null", "deflate"]), st.data())
def test_every_value_is_read_once_from_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[dict[str, Any], list[dict[str, Any]]],
    size: int,
    codec: str,
    data: st.DataObject,
) -> None:
    schema, values = case
    path = tmp_path_factory.mktemp("files") / "a.avro"
    content = written(schema, values, codec=codec, sync_interval=data.draw(st.sampled_from([1, 50])))
    path.write_bytes(content)
    format = AvroRows((), None)
    format.resume(format.columns(path), None)
    found: list[tuple[object, ...]] = []
    position = 0
    for end in (*sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3))), len(content)):
        path.write_bytes(content[:end])
        while True:
            tables, after = format.read(path, position, size)
            for table in tables:
                found += zip(*(column.to_pylist() for column in table.columns), strict=True)
            if after == position:
                break
            position = after
    expected = decoded_rows(decoded(encoded(schema, values), schema))
    assert found == [tuple(row.values()) for row in expected]
    assert position == len(content)


@examples(50)
@given(st.randoms(use_true_random=False), st.sampled_from(["null", "deflate"]))
def test_a_damaged_file_gives_only_documented_errors(
    tmp_path_factory: pytest.TempPathFactory, random: random.Random, codec: str
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.avro"
    data = bytearray(written(ROW, VALUES, codec=codec, sync_interval=100))
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] = random.randrange(256)
    path.write_bytes(data[: random.randint(0, len(data))])
    format = AvroRows((), json.dumps(ROW))
    format.resume(format.columns(None), None)
    position, rows, known = 0, 0, True
    try:
        while (found := format.read(path, position, 200))[1] != position:
            position, rows = found[1], rows + sum(table.num_rows for table in found[0])
    except PgError as error:
        known = str(path) in error.message and error.sqlstate in (
            *(SqlState.DATA_CORRUPTED, SqlState.PROGRAM_LIMIT_EXCEEDED, SqlState.BAD_COPY_FILE_FORMAT),
            *(SqlState.DATATYPE_MISMATCH, SqlState.FEATURE_NOT_SUPPORTED),
        )
    assert known
    assert rows <= len(VALUES) * 2  # a damaged count


async def test_files_are_read_as_they_grow_and_appear(tmp_path: Path) -> None:
    content = blocks_of(ROW, VALUES)
    file = tmp_path / "a.avro"
    file.write_bytes(content[:-20])
    source = definition(tmp_path / "*.avro", Encoding("avro"))
    (output,) = await FileSource().outputs(source)
    assert output.columns == (Column("f0", "int8", False), Column("f1", "text"))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == AS_ROWS[:90]
    file.write_bytes(content)
    assert await rows_of(source, state, 1) == AS_ROWS[90:]
    assert state == {str(file): b"%d" % len(content), "schema": json.dumps(ROW).encode()}
    (tmp_path / "b.avro").write_bytes(written(ROW, VALUES[:2]))
    assert await rows_of(source, state, 1) == AS_ROWS[:2]


async def test_a_few_blocks_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(blocks_of(ROW, VALUES))
    source = definition(tmp_path / "a.avro", Encoding("avro"))
    found: list[tuple] = []
    state: dict[str, bytes] = {}
    for _ in range(10):
        part = await rows_of(source, state, 1, bytes_max=1)
        assert len(part) == 10
        found += part
    assert found == AS_ROWS


async def test_schemas_of_files_are_resolved_to_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(blocks_of(ROW, VALUES[:2]))
    source = definition(tmp_path / "*.avro", Encoding("avro"))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == AS_ROWS[:2]
    narrow = {
        "type": "record",
        "name": "other",
        "fields": [{"name": "x", "type": "int"}, {"name": "f0", "type": "int"}],
    }
    (tmp_path / "b.avro").write_bytes(blocks_of(narrow, [{"x": 7, "f0": 8}]))
    assert await rows_of(source, state, 1) == [(8, None)]
    (tmp_path / "c.avro").write_bytes(blocks_of(record("string"), [{"f0": "x"}]))
    with pytest.raises(PgError, match=r"c.avro. does not match the source: Writer schema has type `String`") as caught:
        await rows_of(source, state, 1)
    assert caught.value.sqlstate is SqlState.DATATYPE_MISMATCH


async def test_the_first_file_must_have_the_columns_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "b.avro").write_bytes(blocks_of(ROW, VALUES[:2]))
    source = definition(tmp_path / "*.avro", Encoding("avro"))
    (output,) = await FileSource().outputs(source)
    (tmp_path / "a.avro").write_bytes(blocks_of(record("string"), [{"f0": "x"}]))
    upstream = upstream_of(source, output)
    await upstream.open({})
    with pytest.raises(PgError, match=r"schema of file .*a\.avro. is not the one"):
        await upstream.read(10**6)
    await upstream.close()


async def test_columns_of_the_definition(tmp_path: Path) -> None:
    source = definition(tmp_path / "*.avro", Encoding("avro"), Column("f1", "text"), Column("f0", "int4"))
    assert (await FileSource().outputs(source))[0].columns == source.columns
    (tmp_path / "a.avro").write_bytes(blocks_of(ROW, VALUES[:2]))
    assert await rows_of(source, {}, 1) == [(text, number) for number, text in AS_ROWS[:2]]
    first = blocks_of(ROW, VALUES[:2])
    block = encoded_block(encoded(ROW, [VALUES[0], {"f0": 1 << 40, "f1": None}]), SYNC)
    (tmp_path / "a.avro").write_bytes(first + block)
    with pytest.raises(PgError) as caught:
        await rows_of(source, {}, 1)
    assert caught.value.message == (
        f'file "{tmp_path / "a.avro"}", value 2 in the block at byte {len(first)}, column f0: '
        f'cannot convert "{1 << 40}" to int4'
    )
    other = definition(tmp_path / "*.avro", Encoding("avro"), Column("x", "text"))
    with pytest.raises(PgError, match='has no column "x"'):
        await rows_of(other, {}, 1)


async def test_a_schema_of_the_definition(tmp_path: Path) -> None:
    reader = record("double", ["null", "string"])
    source = definition(tmp_path / "*.avro", Encoding("avro", schema=json.dumps(reader)))
    (output,) = await FileSource().outputs(source)
    assert [column.type for column in output.columns] == ["float8", "text"]
    (tmp_path / "a.avro").write_bytes(blocks_of(ROW, VALUES[1:2]))
    assert await rows_of(source, {}, 1) == [(1.0, "v1")]


@pytest.mark.parametrize(
    ("encoding", "columns", "state", "message"),
    [
        (Encoding("avro"), (), SqlState.INVALID_PARAMETER_VALUE, "there is no Avro file with a header yet"),
        (Encoding("avro", schema="{"), (), SqlState.FEATURE_NOT_SUPPORTED, "schema is not valid JSON"),
        (Encoding("avro", schema='"long"'), (), SqlState.FEATURE_NOT_SUPPORTED, "schema is not a record but Long"),
        (
            Encoding("avro", schema='{"type": "record", "name": "r", "fields": []}'),
            (),
            SqlState.FEATURE_NOT_SUPPORTED,
            "schema has no fields",
        ),
        (
            Encoding("avro", schema=json.dumps({**ROW, "fields": [ROW["fields"][0]] * 2})),
            (),
            SqlState.DUPLICATE_COLUMN,
            'column "f0" specified more than once',
        ),
        (
            Encoding("avro", schema=json.dumps(ROW)),
            (Column("a", "text"),),
            SqlState.FEATURE_NOT_SUPPORTED,
            "USING SCHEMA and types of the columns cannot be combined",
        ),
        (
            Encoding("avro", schema=json.dumps(ROW), options={"confluent wire format": "true"}),
            (),
            SqlState.FEATURE_NOT_SUPPORTED,
            "CONFLUENT WIRE FORMAT of a source from a file are not supported",
        ),
    ],
)
async def test_invalid_definitions_are_refused(
    tmp_path: Path, encoding: Encoding, columns: tuple[Column, ...], state: SqlState, message: str
) -> None:
    with pytest.raises(PgError, match=message) as caught:
        await FileSource().outputs(definition(tmp_path / "*.avro", encoding, *columns))
    assert caught.value.sqlstate is state


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_text("n,t\n")
    with pytest.raises(PgError, match="at byte 0: it does not begin as an Avro container file"):
        await FileSource().outputs(definition(tmp_path / "a.avro", Encoding("avro")))
    header = encoded_header(json.dumps(ROW), SYNC, "xz")
    (tmp_path / "a.avro").write_bytes(header)
    with pytest.raises(PgError, match="codec xz of file") as caught:
        await FileSource().outputs(definition(tmp_path / "a.avro", Encoding("avro")))
    assert "null, deflate" in str(caught.value.hint)


async def test_an_invalid_block_fails_the_source_after_the_blocks_before_it(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    start = blocks_of(ROW, VALUES[:20])
    good = encoded_block(encoded(ROW, VALUES[20:25]), SYNC)
    limit = SqlState.PROGRAM_LIMIT_EXCEEDED
    for block, state, reason in [
        (good[:-1] + b"\xff", SqlState.DATA_CORRUPTED, "the block does not end with the sync marker of the file"),
        (varint_bytes(5, 2 << 30) + b"x", limit, "the block has 2147483648 bytes, which is more than 268435456"),
        (varint_bytes(1 << 30, 3) + b"abc" + SYNC, limit, "the block has 1073741824 values"),
        (varint_bytes(1, 1) + b"\x02" + SYNC, SqlState.DATA_CORRUPTED, "value 1 of the block: unexpected end"),
        (varint_bytes(1, 3) + b"\x02\0\0" + SYNC, SqlState.DATA_CORRUPTED, "value 2 of the block: 1 bytes left over"),
    ]:
        file.write_bytes(start + block + good)
        source = definition(file, Encoding("avro"))
        positions: dict[str, bytes] = {}
        assert await rows_of(source, positions, 1) == AS_ROWS[:20]
        message = f'file "{file}" cannot be read at byte {len(start)}: {reason}'
        with pytest.raises(PgError, match=re.escape(message)) as caught:
            await rows_of(source, positions, 1)
        assert caught.value.sqlstate is state
        file.write_bytes(start + good)
        assert await rows_of(source, positions, 1) == AS_ROWS[20:25]


async def test_an_invalid_value_fails_the_source_after_the_blocks_before_it(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    start = blocks_of(ROW, VALUES[:20])
    messages = [*encoded(ROW, VALUES[20:25]), b"\x02\x02\x02\xff"]
    file.write_bytes(start + encoded_block(messages, SYNC))
    source = definition(file, Encoding("avro"))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == AS_ROWS[:20]
    message = f'invalid value 6 in the block at byte {len(start)} of file "{file}": field f1: invalid UTF-8'
    with pytest.raises(PgError, match=re.escape(message)) as caught:
        await rows_of(source, state, 1)
    assert caught.value.sqlstate is SqlState.BAD_COPY_FILE_FORMAT


async def test_a_block_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink removes an incomplete block when it starts again. A read may return parts of both blocks."""
    file = tmp_path / "a.avro"
    file.write_bytes(blocks_of(ROW, VALUES))
    split, torn = avro_files.split_blocks, iter((b"\x02\x02\0" + b"\0" * 16,))
    monkeypatch.setattr(avro_files, "split_blocks", lambda data, *place: split(next(torn, data), *place))
    assert await rows_of(definition(file, Encoding("avro")), {}, 1) == AS_ROWS


async def test_a_replaced_file_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    file.write_bytes(blocks_of(ROW, VALUES))
    source = definition(file, Encoding("avro"))
    state: dict[str, bytes] = {}
    await rows_of(source, state, 1)
    file.write_bytes(written(ROW, VALUES * 20))
    with pytest.raises(PgError, match="no block ends there, although the file was read up to there"):
        await rows_of(source, state, 1)
    file.write_bytes(blocks_of(ROW, VALUES[:20]))
    with pytest.raises(PgError, match="was truncated"):
        await rows_of(source, state, 1)


async def test_values_without_bytes_are_bounded(tmp_path: Path) -> None:
    """Millions of values of a block of a few bytes are read a block at a time."""
    schema = record({"type": "fixed", "name": "nothing", "size": 0})
    block = varint_bytes(100_000, 0) + SYNC
    (tmp_path / "a.avro").write_bytes(encoded_header(json.dumps(schema), SYNC) + block * 50)
    source = definition(tmp_path / "a.avro", Encoding("avro"))
    assert len(await rows_of(source, {}, 1, bytes_max=150_000)) == 200_000


async def test_a_block_that_expands_too_much_fails_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "BLOCK_BYTES_MAX", 1_000_000)
    bomb = written(record("bytes"), [{"f0": b"\0" * 2_000_000}], codec="deflate")
    assert len(bomb) < 10_000
    (tmp_path / "a.avro").write_bytes(bomb)
    header = parse_header(bomb)
    assert header is not None
    with pytest.raises(PgError, match=f"at byte {header.size}: the decoded block has more than 1000000 bytes"):
        await rows_of(definition(tmp_path / "a.avro", Encoding("avro")), {}, 1)


async def test_a_block_larger_than_a_read_and_an_empty_one(tmp_path: Path) -> None:
    data = blocks_of(ROW, VALUES, size=100)
    empty = varint_bytes(0, 0) + SYNC
    (tmp_path / "a.avro").write_bytes(data + empty)
    source = definition(tmp_path / "a.avro", Encoding("avro"))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1, bytes_max=30) == AS_ROWS
    assert await rows_of(source, state, 1, bytes_max=30) == []
    assert state[str(tmp_path / "a.avro")] == b"%d" % len(data + empty)


async def test_a_large_header_is_read(tmp_path: Path) -> None:
    fields = [{"name": f"f{n}", "type": "long", "doc": "x" * 100} for n in range(1_000)]
    schema = {"type": "record", "name": "r", "fields": fields}
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [{f"f{n}": n for n in range(1_000)}])
    (tmp_path / "a.avro").write_bytes(buffer.getvalue())
    source = definition(tmp_path / "a.avro", Encoding("avro"))
    assert await rows_of(source, {}, 1) == [tuple(range(1_000))]


# -- ENVELOPE MATERIALIZE ---------------------------------------------------------------------------------------------

DATA = [EncodedColumn("n", parse_type("int8"), False), EncodedColumn("t", parse_type("text"))]
CDC = schema_text(DATA)


def changes_of(path: object, *columns: Column, schema: str | None = None) -> SourceDefinition:
    format = Format(Encoding("avro", schema=schema), envelope=Envelope.MATERIALIZE)
    return SourceDefinition("file", {}, {"path": str(path), "stall timeout": "0s"}, format, columns=columns)


def update(n: int, time: int, diff: int, text: str | None = "x") -> list[dict[str, Any]]:
    return [{"data": {"n": n, "t": text}, "time": time, "diff": diff}]


def progress(lower: int, upper: int, **counts: int) -> dict[str, Any]:
    listed = [{"time": int(time[1:]), "count": count} for time, count in counts.items()]
    return {"lower": [lower], "upper": [upper], "counts": listed}


def cdc_block(*messages: Any) -> bytes:
    return encoded_block(encoded(json.loads(CDC), messages), SYNC)


CDC_HEADER = encoded_header(CDC, SYNC)


async def test_changes_are_read_when_their_times_are_closed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.avro", tmp_path / "b.avro"
    block = cdc_block(update(1, 4, 1), update(2, 4, 1), update(1, 6, -1), progress(0, 5, t4=2))
    first.write_bytes(CDC_HEADER + block)
    source = changes_of(tmp_path / "*.avro")
    assert (await FileSource().outputs(source))[0].columns == (Column("n", "int8", False), Column("t", "text"))
    state: dict[str, bytes] = {}
    assert await changes_after(source, state, 1) == [(1, "x", 1), (2, "x", 1)]
    assert state == {"frontier": b"5", f"file:{first}": b"0", "schema": CDC.encode()}  # time 6 is needed again
    second.write_bytes(CDC_HEADER + cdc_block(update(1, 4, 1), progress(5, 9, t6=1, t7=1)))
    assert await changes_after(source, state, 2) == [(1, "x", -1)]
    more = cdc_block(update(-1, -5, 1), update(3, 7, 2))
    with first.open("ab") as file:
        file.write(cdc_block() + more[:-5])
    assert await changes_after(source, state, 2) == []
    with first.open("ab") as file:
        file.write(more[-5:])
    assert await changes_after(source, state, 2) == [(3, "x", 2)]
    assert (state["frontier"], state[f"file:{first}"]) == (b"9", b"%d" % first.stat().st_size)


async def test_the_status_of_changes_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(CDC_HEADER + cdc_block(update(1, -1, 1), update(1, 3, 1), progress(0, 4, t3=3)))
    source = changes_of(tmp_path / "a.avro")
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    with capture_logs() as logs:
        changes = await upstream.read(10**6)
    assert (changes.writes, changes.state["frontier"]) == ({}, b"3")
    status = context.statistics.histories[ID]()
    assert (status.frontier, status.open_updates, status.missing_updates, status.invalid_messages) == (3, 1, 2, 1)
    assert any("after byte 0, message 1" in str(entry) for entry in logs)
    await upstream.close()


@pytest.mark.parametrize("cut", [1, 17, 20])
async def test_a_file_that_is_cut_in_its_last_block_stalls_the_source(tmp_path: Path, cut: int) -> None:
    path, first = tmp_path / "a.avro", cdc_block(update(1, 1, 1), progress(0, 2, t1=1))
    last = cdc_block(update(2, 3, 1), progress(2, 4, t3=1))
    path.write_bytes(CDC_HEADER + first + last[:-cut])
    source = changes_of(path)
    options = {**source.options, "poll interval": "10ms", "stall timeout": "200ms"}
    source = SourceDefinition("file", {}, options, source.format)
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    assert (await upstream.read(10**6)).state["frontier"] == b"2"
    with capture_logs() as logs:
        reading = asyncio.create_task(upstream.read(10**6))
        assert context.statistics.histories[ID]().stall is None
        await asyncio.sleep(1)
    size, begin = len(last) - cut, len(CDC_HEADER + first)
    message = f'file "{path}" ends with an incomplete block of {size} bytes at byte {begin}'
    stall = context.statistics.histories[ID]().stall
    assert stall is not None
    assert stall.message == message
    assert [entry["error"] for entry in logs] == [message]
    with path.open("ab") as file:
        file.write(last[-cut:])
    assert (await reading).state["frontier"] == b"4"
    assert context.statistics.histories[ID]().stall is None
    await upstream.close()


async def test_a_file_that_has_only_its_header_is_complete(tmp_path: Path) -> None:
    """A sink writes the header before it has the rows of its collection, which may take long."""
    path = tmp_path / "a.avro"
    path.write_bytes(CDC_HEADER)
    source = changes_of(path)
    options = {**source.options, "poll interval": "10ms", "stall timeout": "50ms"}
    source = SourceDefinition("file", {}, options, source.format)
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    state = (await upstream.read(10**6)).state
    with capture_logs() as logs:
        reading = asyncio.create_task(upstream.read(10**6))
        await asyncio.sleep(0.3)
        assert context.statistics.histories[ID]().stall is None
    assert logs == []
    reading.cancel()
    await upstream.close()
    with path.open("ab") as file:
        file.write(cdc_block(update(1, 1, 1), progress(0, 2, t1=1)))
    await upstream.open(state)
    assert (await upstream.read(10**6)).state["frontier"] == b"2"
    await upstream.close()


async def test_columns_of_changes_can_be_given(tmp_path: Path) -> None:
    columns = (Column("n", "int2"), Column("t", "text"), Column("at", "timestamptz"))
    source = changes_of(tmp_path / "*.avro", *columns)
    assert (await FileSource().outputs(source))[0].columns == columns
    written = [EncodedColumn(c.name, parse_type(c.type)) for c in columns]
    schema = schema_text(written)
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def file_of(n: int) -> bytes:
        data = {"n": n, "t": None, "at": at}
        messages = [[{"data": data, "time": 1, "diff": 1}], progress(0, 2, t1=1)]
        return encoded_header(schema, SYNC) + encoded_block(encoded(json.loads(schema), messages), SYNC)

    (tmp_path / "a.avro").write_bytes(file_of(5))
    assert await changes_after(source, {}, 1) == [(5, None, at, 1)]
    (tmp_path / "a.avro").write_bytes(file_of(1 << 20))
    with pytest.raises(PgError, match=r"a\.avro. has a value that is out of range") as caught:
        await changes_after(source, {}, 1)
    assert caught.value.sqlstate is SqlState.NUMERIC_VALUE_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("columns", "schema", "message"),
    [
        ((), None, "there is no Avro file with a header yet"),
        ((), json.dumps(ROW), "schema is not that of CDCv2 messages"),
        ((Column("a b", "text"),), None, 'column "a b" has a name that Avro does not allow'),
    ],
)
async def test_invalid_definitions_of_changes_are_refused(
    tmp_path: Path, columns: tuple[Column, ...], schema: str | None, message: str
) -> None:
    with pytest.raises(PgError, match=message):
        await FileSource().outputs(changes_of(tmp_path / "*.avro", *columns, schema=schema))


async def test_files_without_changes_fail_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(CDC_HEADER + cdc_block(progress(0, 2)))
    source = changes_of(tmp_path / "*.avro")
    state: dict[str, bytes] = {}
    assert await changes_after(source, state, 1) == []
    (tmp_path / "b.avro").write_bytes(blocks_of(ROW, VALUES))
    with pytest.raises(PgError, match=r"b\.avro. does not match the source: schema is not that of CDCv2 messages"):
        await changes_after(source, state, 1)
