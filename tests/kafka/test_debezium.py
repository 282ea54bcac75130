"""ENVELOPE DEBEZIUM and DEBEZIUM UPSERT against the tables of the databases that wrote the messages."""

from __future__ import annotations

import datetime
import io
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.source_definition import Encoding, Envelope, Format
from protocol.pgwire.errors import PgError
from server.ingest.kafka.envelopes.debezium import Progress
from server.ingest.kafka.layouts.by_envelope import layout_of
from server.ingest.kafka.layouts.layout import Schemas
from server.ingest.kafka.positions import Upstream
from tests.examples import examples
from tests.kafka.capture import CUSTOMERS, ORDERS, captured
from tests.kafka.debezium import CLASSIC, UPSERT, Database, Event, schemas_of, with_replays
from tests.kafka.outputs import Message, OutputRun, run


def messages_of(events: Sequence[Event], database: str, partitions: int, random: random.Random) -> list[Message]:
    found = []
    for event in events:
        found.append(event.message(database, partitions))
        if event.op == "d" and random.random() < 0.8:
            found.append(event.tombstone(partitions))
    return found


def interleaved(messages: Sequence[Message], random: random.Random) -> list[Message]:
    """The messages as a consumer gets them: in order within each partition."""
    parts: dict[int, list[Message]] = {}
    for message in messages:
        parts.setdefault(message.partition, []).append(message)
    found = []
    while parts:
        partition = random.choice(list(parts))
        count = random.randint(1, 4)
        found += parts[partition][:count]
        parts[partition] = parts[partition][count:]
        if not parts[partition]:
            del parts[partition]
    return found


async def applied(output: OutputRun, messages: Sequence[Message], random: random.Random) -> None:
    """Commits the messages in batches, with restarts between them."""
    done = 0
    while done < len(messages):
        count = random.randint(1, 8)
        await output.apply(messages[done : done + count])
        done += count
        match random.randrange(8):
            case 0:
                output.envelope.close()
                output.resume()
            case 1:
                await output.restart()


async def table(output: OutputRun) -> dict[Any, Any]:
    rows = await output.rows()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


@examples(25)
@given(st.integers(0, 10**9), st.sampled_from(["postgres", "mysql", "gtid"]), st.integers(1, 3), st.booleans())
def test_the_output_is_the_upstream_table_after_replays_and_restarts(
    seed: int, database: str, partitions: int, classic: bool
) -> None:
    async def check() -> None:
        generator = random.Random(seed)
        upstream = Database(generator, database)
        upstream.insert(generator.randint(0, 6))
        snapshot = upstream.snapshot()
        events = snapshot + [event for _ in range(generator.randint(1, 12)) for event in upstream.transaction()]
        events = with_replays(events, generator, generator.randint(0, 4))
        messages = interleaved(messages_of(events, upstream.name, partitions, generator), generator)
        with tempfile.TemporaryDirectory() as directory:
            format = CLASSIC if classic else UPSERT
            async with OutputRun(Path(directory), format, schemas_of(upstream.name), partitions=partitions) as output:
                await applied(output, messages, generator)
                assert await table(output) == upstream.rows
                assert output.errors == []

    run(check())


@examples(15)
@given(st.integers(0, 10**9), st.sampled_from(["postgres", "mysql", "gtid"]), st.booleans())
def test_a_new_snapshot_replaces_the_output(seed: int, database: str, in_snapshot: bool) -> None:
    """A connector that lost its offsets reads the table again, in the midst of a snapshot or of changes."""

    async def check() -> None:
        generator = random.Random(seed)
        upstream = Database(generator, database)
        upstream.insert(5)
        events = upstream.snapshot()
        if in_snapshot:
            events = events[: generator.randint(1, 5)]
        changes = [event for _ in range(5) for event in upstream.transaction()]  # lost, if in the midst of a snapshot
        events += [] if in_snapshot else with_replays(changes, generator, 2)
        events += upstream.snapshot()
        events += with_replays([event for _ in range(3) for event in upstream.transaction()], generator, 1)
        with tempfile.TemporaryDirectory() as directory:
            async with OutputRun(Path(directory), CLASSIC, schemas_of(upstream.name)) as output:
                await applied(output, messages_of(events, upstream.name, 1, generator), generator)
                assert await table(output) == upstream.rows

    run(check())


async def test_a_second_snapshot_of_several_partitions_is_refused(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, CLASSIC, schemas_of("postgres"), partitions=2) as output:
        await output.apply([Event("r", None, (1, "a"), (None, 5), "last").message(partitions=2)])
        with pytest.raises(PgError, match="has a second snapshot, and several partitions"):
            await output.apply([Event("r", None, (1, "b"), (None, 9), "last").message(partitions=2)])


async def test_the_order_of_changes_of_concurrent_transactions(tmp_path: Path) -> None:
    """The LSN of a change may be less than that of a change of an earlier commit; the commit's decides."""
    positions = [(1, 3), (1, 5), (1, 7), (8, 4), (8, 6), (1, 5), (8, 4), (8, 9)]
    events = [Event("c", None, (id, None), position) for id, position in enumerate(positions)]
    async with OutputRun(tmp_path, CLASSIC, schemas_of("postgres")) as output:
        await output.apply([event.message() for event in events])
        assert sorted(await table(output)) == [0, 1, 2, 3, 4, 7]


def test_positions_that_an_earlier_version_stored() -> None:
    stored = b"[[3, 500, 1], null, true]"
    assert Progress.restored(stored, Upstream.MYSQL).highest == {"": (0, 3, 500, 1, 2)}
    assert Progress.restored(stored, Upstream.POSTGRES).highest == {"": (3, 500, 1)}


async def test_unavailable_values_are_those_of_the_old_row(tmp_path: Path) -> None:
    unknown = "__debezium_unavailable_value"
    insert = Event("c", None, (1, "long"), (1, 2)).message()
    updates = [Event("u", (1, unknown), (1, unknown), (1, lsn)).message() for lsn in (3, 4)]
    async with OutputRun(tmp_path, UPSERT, schemas_of("postgres")) as output:
        await output.apply([insert])
        await output.apply(updates)  # from the output
        assert await table(output) == {1: "long"}
        await output.apply([Event("u", None, (1, "new"), (1, 5)).message(), *updates])  # from the step
        assert await table(output) == {1: "new"}
        await output.apply([Event("c", None, (2, unknown), (1, 6)).message()])  # it is nowhere
        assert await table(output) == {1: "new", 2: unknown}


async def test_unavailable_values_are_those_of_before(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, CLASSIC, schemas_of("postgres")) as output:
        await output.apply([Event("c", None, (1, "long"), (1, 2)).message()])
        await output.apply([Event("u", (1, "long"), (1, "__debezium_unavailable_value"), (1, 3)).message()])
        assert await table(output) == {1: "long"}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Event("u", None, (1, "b"), (1, 9)), 'topic "topic" has a change without the old row'),
        (Event("t", None, (1, "b"), (1, 9)), "has the TRUNCATE of a table"),
        (Event("r", None, (1, "b"), (1, 9), "incremental"), "has an incremental snapshot"),
    ],
)
async def test_messages_that_the_classic_envelope_refuses(tmp_path: Path, event: Event, message: str) -> None:
    async with OutputRun(tmp_path, CLASSIC, schemas_of("postgres")) as output:
        await output.apply([Event("c", None, (1, "a"), (1, 8)).message()])
        with pytest.raises(PgError, match=message) as error:
            await output.apply([event.message()])
        assert "ENVELOPE DEBEZIUM UPSERT" in (error.value.hint or "")
        assert await table(output) == {1: "a"}


async def test_an_invalid_sequence_is_an_error_of_the_output(tmp_path: Path) -> None:
    message = Event("c", None, (1, "a"), (1, 8)).message()
    assert message.value is not None
    broken = replace(message, value=message.value.replace(b'["1", "8"]', b'["1"; "8"]'))
    async with OutputRun(tmp_path, CLASSIC, schemas_of("postgres")) as output:
        await output.apply([broken])
        assert output.errors == ['Debezium: invalid sequence: ["1"; "8"]']
        assert await output.rows() == []


async def test_an_invalid_gtid_is_an_error_of_the_output(tmp_path: Path) -> None:
    event = Event("c", None, (1, "a"), (1, 8), gtid="broken")
    async with OutputRun(tmp_path, CLASSIC, schemas_of("mysql")) as output:
        await output.apply([event.message("mysql")])
        assert output.errors == ["Debezium: invalid file: mysql-bin.000001, gtid: broken"]


@pytest.mark.parametrize(
    ("database", "without", "message"),
    [
        ("sqlserver", [], "ENVELOPE DEBEZIUM does not support SQL Server"),
        ("postgres", ["before"], "'before' column missing from debezium input"),
        ("postgres", ["op"], "'op' column missing from debezium input"),
        ("postgres", ["source"], "'source' column missing from debezium input"),
    ],
)
def test_schemas_that_the_classic_envelope_refuses(database: str, without: list[str], message: str) -> None:
    schemas = schemas_of(database, without=without)
    with pytest.raises(PgError, match=message):
        layout_of(CLASSIC, schemas, {"key": None, "value": None})
    layout_of(UPSERT, schemas, {"key": None, "value": None})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "requires a table with a primary key"),
        ([("other", "int")], "Value schema missing primary key column: other"),
        ([("id", "long")], "key and value column types do not match"),
    ],
)
def test_keys_that_are_refused(key: Any, message: str) -> None:
    fields = [{"name": name, "type": type} for name, type in key or []]
    schema = None if key is None else json.dumps({"type": "record", "name": "Key", "fields": fields})
    with pytest.raises(PgError, match=message):
        layout_of(CLASSIC, Schemas(schema, schemas_of("postgres").value), {"key": None, "value": None})


# -- messages that Debezium wrote -----------------------------------------------------------------------------------

_FRAMED = Encoding("avro", schema="")


def capture_of(topic: str) -> tuple[Schemas, list[Message]]:
    schemas, messages = captured()
    own = [message for message in messages if message.topic == topic]
    first = next(message for message in own if message.value is not None)
    assert first.key is not None
    assert first.value is not None
    key, value = (schemas[int.from_bytes(data[1:5], "big")] for data in (first.key, first.value))
    return Schemas(key, value), [Message(message.key, message.value) for message in own]


def modelled(topic: str) -> dict[int, Any]:
    """The table at the end: the row after the last change of each key, as fastavro decodes it."""
    schemas, messages = captured()
    parsed = {id: fastavro.parse_schema(json.loads(text)) for id, text in schemas.items()}

    def decoded(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed[int.from_bytes(data[1:5], "big")], None)

    found: dict[int, Any] = {}
    for message in messages:
        if message.topic == topic and message.value is not None and message.key is not None:
            found[decoded(message.key)["id"]] = decoded(message.value)["after"]
    return {id: {name: _column(v) for name, v in row.items()} for id, row in found.items() if row is not None}


def _column(value: Any) -> Any:
    if isinstance(value, dict):
        return Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-value["scale"])
    if isinstance(value, str) and value.endswith("Z"):
        return datetime.datetime.fromisoformat(value)
    return value


@pytest.mark.parametrize(
    ("topic", "envelope"),
    [
        (CUSTOMERS, Envelope.DEBEZIUM),
        (CUSTOMERS, Envelope.DEBEZIUM_UPSERT),
        (ORDERS, Envelope.DEBEZIUM_UPSERT),
    ],
)
@pytest.mark.parametrize("seed", range(5))
async def test_the_capture_gives_the_table_of_postgresql(
    tmp_path: Path, topic: str, envelope: Envelope, seed: int
) -> None:
    generator = random.Random(seed)
    schemas, messages = capture_of(topic)
    for _ in range(seed):  # crashes of the connector
        crash = generator.randrange(20, len(messages))
        messages = messages[:crash] + messages[crash - generator.randint(1, 15) :]
    async with OutputRun(tmp_path, Format(_FRAMED, _FRAMED, envelope=envelope), schemas) as output:
        await applied(output, messages, generator)
        rows = await output.rows()
        assert output.errors == []
        by_id = sorted(rows, key=lambda row: row["id"])
        assert by_id == sorted(modelled(topic).values(), key=lambda row: row["id"])


async def test_a_table_without_full_replica_identity_is_refused(tmp_path: Path) -> None:
    schemas, messages = capture_of(ORDERS)
    async with OutputRun(tmp_path, Format(_FRAMED, _FRAMED, envelope=Envelope.DEBEZIUM), schemas) as output:
        with pytest.raises(PgError, match="has a change without the old row") as error:
            await output.apply(messages)
        assert "REPLICA IDENTITY FULL" in (error.value.hint or "")
        assert error.value.detail == 'Topic "topic", partition 0, offset 36, schema id 4.'
