"""ENVELOPE MATERIALIZE: a history from the messages of several partitions, over restarts at any point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from catalog import source_state
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.avro_form import AvroEncoder, schema_text
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.messages import DIFF_FIELD, END, TIME_FIELD, Progress
from protocol.cdcv2.orders import Total
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.ingest.history import CALLS_MAX, MULTIPLICITY_MAX, History
from server.ingest.kafka.changes_format import AvroChangesDecoder
from server.ingest.kafka.envelopes import materialize
from server.ingest.kafka.layouts.layout import Schemas
from server.runtime import parallel
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.outputs import ID, Message, OutputRun, Topic
from tests.kafka.records import Record, send
from tests.kafka.test_upstream import Source, definition, running
from tests.protocol.cdcv2.histories import cut, random_updates, statement
from tests.protocol.cdcv2.test_readers import SCHEMA, says, table

TEXT = parse_type("text")
COLUMNS = [EncodedColumn("name", TEXT, False)]
ENCODER = AvroEncoder(COLUMNS)
FORMAT = Format(Encoding("avro", schema="", options={"confluent wire format": "false"}), envelope=Envelope.MATERIALIZE)
SCHEMAS = Schemas(None, schema_text(COLUMNS))
TIMES, PARTITIONS = 8, 3


def progress(each: Any, encoder: AvroEncoder | JsonEncoder) -> bytes:
    return encoder.progress(Progress.of(each.lower, each.upper, list(each.counts.items())))


def history(
    random: Random, encoder: AvroEncoder | JsonEncoder = ENCODER
) -> tuple[set[tuple[str, int, int]], list[list[bytes]]]:
    """Updates that add and remove rows, and the partitions of a topic, in which each message is at least once."""
    updates: set[tuple[str, int, int]] = set()
    for data, time, _ in sorted(random_updates(random, range(TIMES), 20)):
        updates.add((data, time, 1))
        if random.random() < 0.4:
            updates.add((data, random.randrange(time, TIMES) + 1, -1))
    updates = {(data, time, diff) for data, time, diff in updates if (data, time, -diff) not in updates}
    order = Total()
    statements = [statement(order, updates, (0,), (3,)), statement(order, updates, (3,), ())]
    statements += cut(random, order, updates, range(TIMES))
    messages = [progress(each, encoder) for each in statements]
    for _ in range(2):
        shuffled = random.sample(sorted(updates), len(updates))
        for start in range(0, len(shuffled), 3):
            messages += encoder.updates(table(*shuffled[start : start + 3]))
    messages += [b"\x07junk"] * random.randrange(3)
    partitions: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for message in random.sample(messages, len(messages)):
        partitions[random.randrange(PARTITIONS)].append(message)
    return updates, partitions


@pytest.mark.parametrize("name", ["avro", "json"])
async def test_parts_of_messages_are_decoded_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Errors name the place of the message, in whichever part it is."""
    monkeypatch.setattr(parallel, "THREADS", 4)
    monkeypatch.setattr(materialize, "PART_BYTES_MIN", 64)
    is_json = name == "json"
    format = Format(Encoding("json"), envelope=Envelope.MATERIALIZE) if is_json else FORMAT
    given = (Column("name", "text", False),) if is_json else ()
    schemas = Schemas(None, None) if is_json else SCHEMAS
    encoder = JsonEncoder(COLUMNS) if is_json else ENCODER
    names = [f"row {number:04}" for number in range(200)]
    messages = [message for each in names for message in encoder.updates(table((each, 1, 1)))]
    messages[150:150] = [b"junk"]
    messages.append(encoder.progress(Progress.of([0], [2], [(1, len(names))])))
    async with OutputRun(tmp_path, format, schemas, partitions=3, columns=given) as output:
        decoded: list[int] = []
        decoder_class = JsonDecoder if is_json else AvroChangesDecoder
        decode = decoder_class.decode

        def counted(decoder: Any, data: pa.BinaryArray) -> Decoded:
            decoded.append(len(data))
            return decode(decoder, data)

        monkeypatch.setattr(decoder_class, "decode", counted)
        with capture_logs() as logs:
            await output.apply([Message(None, value, at % 3) for at, value in enumerate(messages)])
        assert len(decoded) == 4
        assert sum(decoded) == len(messages)
        assert [row["name"] for row in await output.rows()] == names
    (entry,) = (entry for entry in logs if entry["event"] == "invalid messages")
    assert (entry["count"], entry["first"]) == (1, 'topic "topic", partition 0, offset 50')


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["avro", "json"])
async def test_the_rows_are_those_of_closed_times_over_restarts(tmp_path: Path, name: str, seed: int) -> None:
    random = Random(seed)
    is_json = name == "json"
    updates, partitions = history(random, JsonEncoder(COLUMNS) if is_json else ENCODER)
    format = Format(Encoding("json"), envelope=Envelope.MATERIALIZE) if is_json else FORMAT
    given = (Column("name", "text", False),) if is_json else ()
    schemas = Schemas(None, None) if is_json else SCHEMAS
    async with OutputRun(tmp_path, format, schemas, partitions=PARTITIONS, columns=given) as run:
        positions = dict.fromkeys(range(PARTITIONS), 0)
        stored = dict(positions)
        while any(positions[p] < len(partitions[p]) for p in positions):
            if random.random() < 0.2:
                await run.restart()
                positions = dict(stored)
            partition = random.randrange(PARTITIONS)
            begin = positions[partition]
            values = partitions[partition][begin : begin + random.randint(1, 6)]
            if not values:
                continue
            positions[partition] = begin + len(values)
            topic = Topic({partition: begin})
            await run.commit(topic.messages([Message(None, value, partition) for value in values]))
            stored = dict(run.envelope.resume_offsets(positions) or {})
            frontier = int(source_state.load(run.coordinator.store, ID)[f"{ID}/frontier"])
            expected = Counter[str]()
            for data, time, diff in updates:
                expected[data] += diff if time < frontier else 0
            assert Counter(row["name"] for row in await run.rows()) == +expected
        assert frontier == END
        assert stored == positions


def test_positions_are_those_of_the_first_message_that_is_held() -> None:
    history: History[int] = History("topic", SCHEMA, {})
    receive(history, {0: 5}, table(("a", 7, 1)))
    receive(history, {1: 20}, table(("b", 2, 1)))
    receive(history, {0: 6})
    assert history.positions({0: 9, 1: 22, 2: 4}) == {0: 5, 1: 20, 2: 4}
    receive(history, {1: 22}, None, says([0], [3], t2=1))
    assert history.positions({0: 9, 1: 23}) == {0: 5, 1: 20}  # the first call still has an update
    receive(history, {1: 23}, None, says([3], [8], t7=1))
    assert history.positions({0: 9, 1: 24}) == {0: 9, 1: 24}
    assert history.state() == {"frontier": b"8"}


def test_positions_stay_conservative_when_calls_are_merged() -> None:
    history: History[int] = History("topic", SCHEMA, {})
    for call in range(2 * CALLS_MAX + 7):
        receive(history, {call % 2: call}, table((f"row {call}", call, 1)))
    assert history.positions({0: 10**6, 1: 10**6}) == {0: 0, 1: 1}
    receive(history, {0: 10**6}, None, says([0], [900], **{f"t{t}": 1 for t in range(900)}))
    found = history.positions({0: 10**6 + 1, 1: 10**6})
    assert 0 < found[0] <= 900
    assert 0 < found[1] <= 901


def test_a_stall_is_reported_after_a_time_in_which_something_was_held() -> None:
    now = 0.0
    history: History[int] = History("topic", SCHEMA, {}, stall_s=10, clock=lambda: now)
    now = 100.0
    assert history.status().stall is None  # nothing is held
    receive(history, {0: 0}, table(("a", 4, 1)), says([0], [3]), says([3], [5], t3=2, t4=1), says([9], [12]))
    assert history.status().stall is None
    now = 111.0
    with capture_logs() as logs:
        for _ in range(2):
            receive(history, {0: 0}, table(("b", 3, 1)))
    assert [entry["event"] for entry in logs] == ["history is incomplete"]
    status = history.status()
    assert (status.frontier, status.open_updates, status.missing_updates) == (3, 2, 1)
    assert status.stall is not None
    assert status.stall.message == 'the history of "topic" is incomplete at time 3: 1 of 2 updates have arrived'
    assert status.stall.detail == (
        "1 update is missing at times before 5: 1 at time 3. There is no progress statement about times from 5 to 9."
    )
    receive(history, {0: 1}, table(("c", 3, 1)))
    assert history.status().stall is None
    now = 122.0
    status = history.status()
    assert status.stall is not None
    assert status.stall.message == 'the history of "topic" is incomplete at time 5: no progress statement covers it'
    assert status.stall.detail == "There is no progress statement about times from 5 to 9."
    assert status.stall.hint == "Write the missing messages again: repetitions are ignored."


STALLED = 'the history of "topic" is incomplete at time 2: '
SURPLUS_HINT = (
    "No further message can complete this time. Remove the message with the wrong update or count, or write the "
    "history to another place, and create the source again."
)


def stall_after(updates: pa.Table | None, *statements: Progress) -> PgError:
    history: History[int] = History("topic", SCHEMA, {}, stall_s=0)
    receive(history, {0: 0}, updates, *statements)
    stall = history.status().stall
    assert stall is not None
    return stall


def test_a_stall_with_more_updates_than_counted_says_so() -> None:
    stall = stall_after(table(("a", 2, 1), ("b", 2, 1), ("c", 3, 1)), says([0], [9], t2=1, t3=3, t4=1))
    assert stall.message == STALLED + "more updates have arrived (2) than progress statements count (1)"
    assert stall.detail == (
        "More updates than counted have arrived: 1 at time 2. "
        "3 updates are missing at times before 9: 2 at time 3, 1 at time 4."
    )
    assert stall.hint == SURPLUS_HINT
    uncounted = stall_after(table(("a", 2, 1)), says([0], [9]))
    assert uncounted.message == STALLED + "more updates have arrived (1) than progress statements count (0)"
    assert uncounted.detail == "More updates than counted have arrived: 1 at time 2."


def test_a_stall_for_statements_that_disagree_says_so() -> None:
    stall = stall_after(None, says([0], [9], t2=1), says([0], [9], t2=2))
    assert stall.message == STALLED + "progress statements disagree"
    assert stall.detail == (
        "Two progress statements have different counts for time 2. 1 update is missing at times before 9: 1 at time 2."
    )
    assert stall.hint == SURPLUS_HINT.replace("update or count", "statement")


def test_a_stall_names_the_first_times_of_many() -> None:
    stall = stall_after(None, says([0], [90], **{f"t{time}": 1 for time in range(2, 50)}))
    assert stall.detail == (
        "48 updates are missing at times before 90: "
        + ", ".join(f"1 at time {time}" for time in range(2, 12))
        + ", and more at later times."
    )


def test_multiplicities_that_no_reader_could_hold_are_refused() -> None:
    history: History[int] = History("topic", SCHEMA, {})
    with pytest.raises(PgError, match='change of "topic" has a multiplicity of more than'):
        receive(history, {0: 0}, table(("a", 1, MULTIPLICITY_MAX + 1)), says([0], [2], t1=1))


def receive(history: History[int], first: dict[int, int], updates: pa.Table | None = None, *says: Progress) -> None:
    empty = pa.schema([SCHEMA.field("c0"), TIME_FIELD, DIFF_FIELD]).empty_table()
    found = Decoded(empty if updates is None else updates, says, pa.array([], pa.bool_()).to_numpy(False), str)
    history.receive(found, first, str)


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_topic_is_read_over_restarts(kafka: MockCluster, tmp_path: Path, seed: int) -> None:
    """Messages that are held at a restart are read again. Transactions leave offsets without messages at the end."""
    random = Random(seed)
    updates, partitions = history(random)
    topic = f"restarts-{seed}"
    kafka.create_topic(topic, PARTITIONS)
    encoding = Encoding("avro", schema=SCHEMAS.value, options={"confluent wire format": "false"})
    source = definition(kafka, topic, Format(encoding, envelope=Envelope.MATERIALIZE))
    cuts = [sorted(random.choices(range(len(values) + 1), k=2)) for values in partitions]
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions()
    for step in range(3):
        count = 0
        producer.begin_transaction()
        for partition, (values, (first, second)) in enumerate(zip(partitions, cuts, strict=True)):
            begin, end = ((0, first), (first, second), (second, len(values)))[step]
            send(producer, topic, [Record(None, value, partition) for value in values[begin:end]])
            count += end - begin
        producer.commit_transaction()
        async with running(tmp_path, source) as run:
            await run.until_received(count)  # it may end here, or before what was read is committed
            while step == 2 and not is_complete(run):
                await run.coordinator.frontiers.moved.wait()
            rows = await run.rows()
    expected = Counter[str]()
    for data, _, diff in updates:
        expected[data] += diff
    assert Counter(name for (name,) in rows) == +expected


def is_complete(run: Source) -> bool:
    """Whether the history has ended and is committed."""
    id = run.targets[0].id
    return source_state.load(run.coordinator.store, id).get(f"{id}/frontier") == b"%d" % END
