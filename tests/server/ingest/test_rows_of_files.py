"""Sources that read the changes of rows that sinks write into files: the rows are those of the sink's table."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro.encoder import EncodedColumn
from protocol.pgwire import types as pg
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.egress.net_changes import NONE, Pairs
from server.egress.row_messages import Encoder, JsonForm
from server.ingest import ingestion as module
from server.ingest.decoder_pool import LARGE_BYTES, DecoderPool, holds_lock
from server.ingest.files import frontier_lines
from server.ingest.files.file_source import FileSource
from server.ingest.files.frontier_lines import FrontierLines
from server.ingest.files.row_lines import ImageDecoder, KeyDecoder, UpsertDecoder, first_change
from server.ingest.ingestion import Ingestion, Status
from server.ingest.source_definition import Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.runtime.metrics import Metrics
from tests.catalog.strategies import plain, rows_tables
from tests.examples import examples
from tests.kafka.outputs import JoinEngine
from tests.kafka.sinks import TABLE, until_written
from tests.polling import HANG_S
from tests.protocol.columns import values
from tests.server.egress.child import write
from tests.server.egress.rows_file_child import FILES
from tests.server.egress.test_rows_file import started

COLUMNS = (Column("n", "int8"), Column("v", "text"))
READ = Table(ObjectId("u10"), ObjectId("u2"), "read", COLUMNS)
ENVELOPES = [Envelope.UPSERT, Envelope.DEBEZIUM]


def definition(path: object, envelope: Envelope, columns: tuple[Column, ...] = COLUMNS) -> SourceDefinition:
    format = Format(Encoding("json"), envelope=envelope)
    return SourceDefinition("file", {}, {"path": str(path), "poll interval": "10ms"}, format, columns=columns)


@asynccontextmanager
async def reading(directory: Path, source: SourceDefinition) -> AsyncIterator[tuple[Coordinator, Ingestion]]:
    coordinator = Coordinator(directory, engine=JoinEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})
    await coordinator.start()
    before = coordinator.state
    if READ.id not in before.items:
        await coordinator.commit(Request(catalog=(before, replace(before.with_item(READ), version=before.version + 1))))
    context = SourceContext(READ.id, coordinator, JoinEngine())
    upstream = FileSource().upstream(source, [Target(READ.id, Output("f", "f", COLUMNS))], context)
    ingestion = Ingestion(READ.id, upstream, coordinator, retry_s=0.01)
    task = asyncio.create_task(ingestion.run())
    try:
        yield coordinator, ingestion
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await coordinator.close()


async def rows_of(coordinator: Coordinator, id: ObjectId) -> Counter[Any]:
    return Counter(plain(await coordinator.reads.rows(id, coordinator.latest_time())))


async def until_equal(coordinator: Coordinator, expected: Counter[Any]) -> None:
    async with asyncio.timeout(HANG_S):
        while await rows_of(coordinator, READ.id) != expected:
            await coordinator.frontiers.moved.wait()


@pytest.mark.parametrize("bytes_max", [8 << 20, 100], ids=["whole", "pieces"])
async def test_a_source_has_the_rows_of_the_sink_after_restarts_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    """Lines that are not valid yet are at the end of the files while the sinks are stopped."""
    monkeypatch.setattr(module, "READ_BYTES_MAX", bytes_max)
    choice = random.Random(bytes_max)
    rows: dict[int, str | None] = {}
    for _ in range(4):
        async with started(tmp_path) as (sinking, sinks):
            for _ in range(6):
                changes: list[tuple[int, str | None, int]] = []
                for n in choice.sample(range(12), 4):
                    if n in rows:
                        changes.append((n, rows.pop(n), -1))
                    if choice.random() < 0.7:
                        rows[n] = choice.choice(["a", "b", 'x"\\\n', None])
                        changes.append((n, rows[n], 1))
                if changes:
                    await write(sinking, *changes)
            for id in FILES:
                await until_written(sinking, sinks, id)
            expected = await rows_of(sinking, TABLE.id)
            assert expected == Counter(rows.items())
        for envelope in ENVELOPES:
            with (tmp_path / envelope).open("ab") as file:
                file.write(b'{"key":{"n":1},"value":{"n":1,"v":"lost","before":null}}\n' * choice.randrange(3))
            async with reading(tmp_path / f"read {envelope}", definition(tmp_path / envelope, envelope)) as (read, _):
                await until_equal(read, expected)


async def test_what_a_sink_removes_was_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    valid = b'{"key":{"n":1},"value":{"n":1,"v":"a"}}\n{"frontier":[5]}\n'
    path.write_bytes(valid + b'{"key":{"n":1},"value":{"n":1,"v":"lost"}}\n' * 10)
    async with reading(tmp_path / "read", definition(path, Envelope.UPSERT)) as (read, ingestion):
        await until_equal(read, Counter({(1, "a"): 1}))
        path.write_bytes(valid + b'{"key":{"n":1},"value":null}\n{"frontier":[9]}\n')
        await until_equal(read, Counter())
        assert ingestion.status is Status.RUNNING


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"key":1,"value":1}',
        b'{"value":{"before":1}}',
        b'{"key":{"n":"x"},"value":{"n":"x","after":{"n":"x"}}}',
    ],
)
async def test_an_invalid_line_fails_the_source(tmp_path: Path, envelope: Envelope, line: bytes) -> None:
    good = (
        b'{"key":{"n":1},"value":{"n":1,"v":"a"}}\n'
        if envelope is Envelope.UPSERT
        else b'{"value":{"after":{"n":1}}}\n'
    )
    (tmp_path / "a").write_bytes(good + b'{"frontier":[5]}\n' + line + b'\n{"frontier":[6]}\n')
    async with reading(tmp_path / "read", definition(tmp_path / "a", envelope)) as (read, ingestion):
        async with asyncio.timeout(HANG_S):
            while ingestion.status is not Status.FAILED:
                await read.frontiers.moved.wait()
        error = ingestion.error
        assert isinstance(error, PgError)
        assert error.sqlstate is SqlState.BAD_COPY_FILE_FORMAT
        assert f'invalid change in file "{tmp_path / "a"}" after byte 0' in error.message
        assert error.detail is not None
        assert error.detail.startswith("Line 3 after it: ")


def test_reads_end_at_frontiers_and_search_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    format = FrontierLines(COLUMNS)
    first, second = b'{"a":1}\n{"a":2}\n{"frontier":[5]}\n', b'{"a":3}\n{"frontier":[7]}\n'
    path.write_bytes(first + second + b'{"a":4}\n{"frontier":[8]')  # the last line is not complete
    assert format.read(path, 0, len(first) + 3)[1] == len(first)
    assert format.read(path, 0, 10**6)[1] == len(first + second)
    assert format.read(path, 0, 10)[1] == 8, "a piece without a frontier ends after a line"
    assert format.read(path, len(first + second), 10**6) == ([], len(first + second))
    searched: list[int] = []
    last_frontier = frontier_lines.last_frontier

    def counted(file: int, first: int) -> Any:
        searched.append(path.stat().st_size - first)
        return last_frontier(file, first)

    monkeypatch.setattr(frontier_lines, "last_frontier", counted)
    for _ in range(50):
        with path.open("ab") as file:
            file.write(b'\n{"a":4}' * 1_000)
        assert format.read(path, len(first + second), 10**6) == ([], len(first + second))
    assert sum(searched) < 2 * path.stat().st_size
    with path.open("ab") as file:
        file.write(b'\n{"frontier":[9]}\n')
    assert format.read(path, len(first + second), 10**9)[1] == path.stat().st_size


TYPES = [
    *(t for t in pg.SCALAR_TYPES if t.name not in ("json", "jsonb", "interval", "uuid")),
    pg.numeric(10, 2),
    pg.array_of(pg.INT4),
    pg.JSONB,
]


@pytest.mark.parametrize("type", TYPES, ids=str)
@examples(10)
@given(data=st.data())
def test_rows_of_every_type_are_decoded_as_they_were_encoded(type: pg.PgType, data: st.DataObject) -> None:
    if type.name in ("date", "timestamp", "timestamptz"):  # those of Arrow exceed PostgreSQL's
        width, limit = (pa.int32(), 10**6) if type.name == "date" else (pa.int64(), 10**17)
        numbers = data.draw(st.lists(st.integers(-limit // 2, limit) | st.none(), max_size=8))
        rows = pa.table({"c0": pa.array(numbers, width).cast(type.arrow), "c1": np.arange(len(numbers))})
    elif type.name in pg.NETWORK_TYPES:  # whose bytes are not arbitrary
        addresses = data.draw(st.lists(values(type) | st.none(), max_size=8))
        rows = pa.table({"c0": pa.array(addresses, type.arrow), "c1": np.arange(len(addresses))})
    elif type is pg.JSONB:
        rows = pa.table({"c0": ['{"a": [1, null]}', None, '"x"', "1.50"], "c1": [1, 2, 3, 4]})
    else:
        rows = data.draw(rows_tables((type.arrow, pa.int64()))).combine_chunks()
        if type.arrow == pa.string():  # PostgreSQL's texts do not have the character 0
            rows = rows.set_column(0, "c0", pc.replace_substring(rows["c0"], "\0", "0"))
    if not rows.num_rows:
        return
    columns = [EncodedColumn("before", type), EncodedColumn("n", pg.INT8)]
    count = rows.num_rows
    pick = np.random.default_rng(count)
    before, after = (np.where(pick.random(count) < 0.3, NONE, pick.permutation(count)) for _ in range(2))
    after = np.where((before == NONE) & (after == NONE), 0, after)
    pairs = Pairs(before, after, np.arange(count))
    form = JsonForm(columns)

    def lines(encoder: Encoder) -> pa.Array:
        keys = encoder.keys(rows, pairs)
        found = []
        for at, value in enumerate(encoder.values(rows, pairs).to_pylist()):
            key = b"" if keys is None else b'"key":' + keys[at].as_py() + b","
            found += [b"{" + key + b'"value":' + (value or b"null") + b"}", b'{"frontier":[%d]}' % at]
        return pa.array(found, pa.binary())

    def texts(numbers: Any) -> list[Any]:
        numbers = numbers[numbers != NONE]
        return form.records(rows.take(pa.array(numbers))).to_pylist() if len(numbers) else []

    def again(table: pa.Table) -> list[Any]:
        return form.records(table).to_pylist() if table.num_rows else []

    images = ImageDecoder(columns).decode(lines(Encoder(Envelope.DEBEZIUM, None, None, form)))
    assert (again(images.before), again(images.after)) == (texts(before), texts(after))
    upserts = lines(Encoder(Envelope.UPSERT, (1,), JsonForm(columns[1:]), form))
    assert KeyDecoder(columns).decode(upserts.slice(first_change(upserts), 1)).names == ("n",)
    found = UpsertDecoder(columns, ("n",)).decode(upserts)
    assert not found.failed.any()
    assert found.has_row.tolist() == (after != NONE).tolist()
    assert again(found.rows) == texts(after)
    assert (
        found.keys.column(0).to_pylist()
        == rows["c1"].take(pa.array(np.where(after == NONE, before, after))).to_pylist()
    )


def test_values_that_arrow_converts_in_another_way_are_decoded_one_by_one() -> None:
    columns = [EncodedColumn("x", pg.FLOAT8), EncodedColumn("y", pg.INT8, nullable=False)]
    decoder = UpsertDecoder(columns, ("y",))
    lines = pa.array(
        [b'{"key":{"y":"1"},"value":{"x":"NaN","y":1,"z":{}}}', b'{"key":{"y":2},"value":null}'], pa.binary()
    )
    found = decoder.decode(lines)
    assert (str(found.rows.to_pylist()), found.keys["c0"].to_pylist()) == ("[{'c0': nan, 'c1': 1}]", [1, 2])


GOOD = [b'{"frontier":[1]}', b'{"key":{"y":1},"value":{"y":1,"v":"a"}}', b'{"key":{"y":2},"value":null}']


@pytest.mark.parametrize("type", [pg.TEXT, pg.JSONB], ids=str)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"key":{"y":1},"value":{"v":"x"}}', 'null value in column "y"'),
        (b'{"key":{"y":"x"},"value":null}', 'invalid input syntax for type bigint: "x"'),
        (b'{"key":{"y":1},"value":1}', "it has no key, or no value that is an object or null"),
        (b"{", "invalid JSON: "),
        (b"[]", 'it is not an object with the fields "key" and "value", or "frontier"'),
        (None, "invalid JSON: "),
    ],
)
def test_the_invalid_line_is_found_and_its_reason(type: pg.PgType, line: bytes | None, reason: str) -> None:
    columns = [EncodedColumn("y", pg.INT8, nullable=False), EncodedColumn("v", type)]
    found = UpsertDecoder(columns, ("y",)).decode(pa.array([*GOOD * 3, line, *GOOD, line], pa.binary()))
    (row,) = np.flatnonzero(found.failed)
    assert row == 9
    assert found.reason(9).startswith(reason)


def test_the_key_is_that_of_the_first_change() -> None:
    lines = pa.array([b'{"frontier":[1]}', b'{"key":{"a":1},"value":null}'], pa.binary())
    assert first_change(lines) == 1
    assert first_change(lines.slice(0, 1)) is None
    found = KeyDecoder([EncodedColumn("y", pg.INT8)]).decode(lines.slice(1))
    assert found.reason(0) == 'field "a" of the key is no column'


@pytest.mark.parametrize("envelope", ENVELOPES)
async def test_lines_with_json_are_decoded_by_worker_processes(envelope: Envelope) -> None:
    """The rows are the same as those that the server decodes itself."""
    columns = [EncodedColumn("n", pg.INT8), EncodedColumn("v", pg.JSONB)]
    texts = [f'{{"n": {n}, "v": {{"a": [{n}]}}}}' for n in range(5_000)]
    field = "value" if envelope is Envelope.UPSERT else "after"
    bodies = [f'"value": {text}' if field == "value" else f'"value": {{"after": {text}}}' for text in texts]
    lines = pa.array([f'{{"key": {{"n": {n}}}, {body}}}'.encode() for n, body in enumerate(bodies)], pa.binary())
    decoder = UpsertDecoder(columns, ("n",)) if envelope is Envelope.UPSERT else ImageDecoder(columns)
    assert holds_lock(decoder, lines)
    pool = DecoderPool(workers_max=1)
    try:
        found = await pool.decode(decoder, lines, holds_lock=True)
    finally:
        await pool.close()
    expected = decoder.decode(lines)
    assert not found.failed.any()
    names = ("keys", "rows") if envelope is Envelope.UPSERT else ("before", "after")
    assert all(getattr(found, name).equals(getattr(expected, name)) for name in names)
    assert type(found).joined([found, found]).failed.shape == (10_000,)


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize(("length", "in_worker"), [(10, False), (LARGE_BYTES, True)])
async def test_a_source_has_large_lines_decoded_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, envelope: Envelope, length: int, in_worker: bool
) -> None:
    places: list[bool] = []
    decode = DecoderPool.decode

    async def recorded(self: DecoderPool, decoder: Any, data: pa.BinaryArray, *, holds_lock: bool) -> Any:
        places.append(holds_lock)
        return await decode(self, decoder, data, holds_lock=holds_lock)

    monkeypatch.setattr(DecoderPool, "decode", recorded)
    text = "x" * length
    row = f'{{"n":1,"v":"{text}"}}'
    value = row if envelope is Envelope.UPSERT else f'{{"after":{row}}}'
    (tmp_path / "a").write_text(f'{{"key":{{"n":1}},"value":{value}}}\n{{"frontier":[5]}}\n')
    async with reading(tmp_path / "read", definition(tmp_path / "a", envelope)) as (read, _):
        await until_equal(read, Counter({(1, text): 1}))
    assert places
    assert set(places) == {in_worker}


@pytest.mark.parametrize(
    ("format", "columns", "message"),
    [
        (
            Format(Encoding("avro"), envelope=Envelope.UPSERT),
            COLUMNS,
            "ENVELOPE UPSERT .* requires FORMAT JSON and the",
        ),
        (Format(Encoding("json"), envelope=Envelope.DEBEZIUM), (), "ENVELOPE DEBEZIUM .* requires FORMAT JSON and the"),
        (
            Format(Encoding("json"), envelope=Envelope.DEBEZIUM_UPSERT),
            COLUMNS,
            "ENVELOPE DEBEZIUM UPSERT .* not supported",
        ),
        (Format(Encoding("json"), Encoding("json"), envelope=Envelope.UPSERT), COLUMNS, "KEY FORMAT.*not supported"),
    ],
)
async def test_invalid_definitions_are_refused(
    tmp_path: Path, format: Format, columns: tuple[Column, ...], message: str
) -> None:
    source = SourceDefinition("file", {}, {"path": str(tmp_path / "*")}, format, columns=columns)
    with pytest.raises(PgError, match=message) as caught:
        await FileSource().outputs(source)
    assert caught.value.sqlstate is SqlState.FEATURE_NOT_SUPPORTED


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_frontier_that_goes_backwards_fails_the_source(tmp_path: Path, is_restarted: bool) -> None:
    path = tmp_path / "a"
    first = b'{"key":{"n":1},"value":{"n":1,"v":"a"}}\n{"frontier":[10]}\n{"frontier":[10]}\n'
    second = b'{"key":{"n":1},"value":{"n":1,"v":"b"}}\n{"frontier":[5]}\n'
    path.write_bytes(first if is_restarted else first + second)
    if is_restarted:
        async with reading(tmp_path / "data", definition(path, Envelope.UPSERT)) as (coordinator, _):
            await until_equal(coordinator, Counter([(1, "a")]))
        with path.open("ab") as file:
            file.write(second)
    async with reading(tmp_path / "data", definition(path, Envelope.UPSERT)) as (coordinator, ingestion):
        async with asyncio.timeout(HANG_S):
            while (error := ingestion.error) is None:
                await coordinator.frontiers.moved.wait()
        position, line = (len(first), 2) if is_restarted else (0, 5)
        assert error.message == f'frontier goes backwards in file "{path}" after byte {position}'
        assert error.detail == f"Line {line} after it has the frontier 5, which is before 10."
        assert error.hint is not None
        assert await rows_of(coordinator, READ.id) == (Counter([(1, "a")]) if is_restarted else Counter())
