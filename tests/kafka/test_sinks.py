"""Sinks into Kafka, on librdkafka's mock brokers."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import copytree
from time import sleep
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import KafkaError

from catalog.source_definition import Envelope
from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import parse_schema
from protocol.cdcv2.avro_form import AvroDecoder, CdcSchema
from protocol.cdcv2.json_form import JsonDecoder
from protocol.cdcv2.reader import Reader
from protocol.pgwire.types import parse_type
from server.egress import sink_task
from server.egress.kafka import producer
from tests.fix_server import ServerThread
from tests.kafka.mock_cluster import Api, MockCluster
from tests.kafka.outputs import JoinEngine
from tests.kafka.registry import Registry, RegistryThread
from tests.kafka.sinks import (
    PROGRESS,
    SINK,
    TABLE,
    message_values,
    read_topic,
    replayed,
    sink_of,
    started,
    until_written,
    upserted,
)
from tests.server.egress.child import until_stalled, write
from tests.server.egress.postgres.child import change
from tests.server.egress.postgres.test_table import change as replace_rows
from tests.server.egress.postgres.test_table import rows, status_of, wait_until_stalled, with_values
from tests.server.refusals import refused

pytestmark = pytest.mark.slow

TYPES = """
    k bigint NOT NULL, a smallint NOT NULL, b integer, c real, d double precision, e boolean, f text, g varchar(9),
    h bytea, i date, j time, l timestamp, o numeric(12,3), q uuid, s jsonb
"""
ROWS = """
    (1, 1, -2, 1.5, 'NaN', true, 'x"é\n', 'y', '\\x00ff', '2020-02-29', '01:02:03.000004',
     '1999-12-31 23:59:59.999999', 12.345, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
     '{"b": 1, "a": 2}'),
    (2, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, 7, 0, '-0', '-Infinity', false, '', '', '', '0001-01-01', '00:00', '0001-01-01', 0,
     '00000000-0000-0000-0000-000000000000', 'null'),
    (4, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'infinity', NULL, '-infinity', NULL, NULL, NULL)
"""
AVRO = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic(PROGRESS)
        yield cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with RegistryThread() as registry:
        yield registry


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path_factory.mktemp("server"), JoinEngine(), interval_s=0.02)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_task, "RETRY_S", 0.05)


_numbers = itertools.count(1)


@pytest.fixture
def connection(server: ServerThread, kafka: MockCluster, registry: Registry) -> Iterator[psycopg.Connection]:
    """A session in a new database, with connections `k` and `r`."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as main:
        main.execute(f"CREATE DATABASE {name}".encode())
        with psycopg.connect(server.dsn(name), autocommit=True) as connection:
            connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')".encode())
            connection.execute(f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}')".encode())
            yield connection
        main.execute(f"DROP DATABASE {name} CASCADE".encode())


def until_equal(connection: psycopg.Connection, expected: str, relation: str) -> None:
    """Waits until two relations have the same rows. Fails if the sink is stalled."""
    wanted = rows(connection, expected)
    while rows(connection, relation) != wanted:
        assert status_of(connection) == ("running", None)
        sleep(0.005)


def create_sink(connection: psycopg.Connection, kafka: MockCluster, rest: str, partitions: int = 3) -> str:
    """Creates a sink `s` of table `t` into a new topic, and returns the topic."""
    topic = f"topic-{next(_numbers)}"
    kafka.create_topic(topic, partitions)
    connection.execute(f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') {rest}".encode())
    return topic


def until_running(connection: psycopg.Connection) -> None:
    """Waits until the sink is running."""
    while status_of(connection)[0] != "running":
        sleep(0.005)


@pytest.mark.parametrize(
    ("key", "envelope", "read"),
    [
        ("KEY (k)", "UPSERT", "UPSERT"),
        ("KEY (k, a) NOT ENFORCED", "UPSERT", "UPSERT"),
        ("KEY (k)", "DEBEZIUM", "DEBEZIUM UPSERT"),
        ("", "MATERIALIZE", "MATERIALIZE"),
    ],
)
def test_a_source_from_the_topic_follows_the_table(
    server: ServerThread, connection: psycopg.Connection, kafka: MockCluster, key: str, envelope: str, read: str
) -> None:
    connection.execute(f"CREATE TABLE t ({TYPES})".encode())
    connection.execute(f"INSERT INTO t VALUES {ROWS}".encode())
    topic = create_sink(connection, kafka, f"{key} {AVRO} ENVELOPE {envelope}")
    until_running(connection)
    source = f"CREATE SOURCE z FROM KAFKA CONNECTION k (TOPIC '{topic}') {AVRO} ENVELOPE {read}"
    connection.execute(source.encode())
    until_equal(connection, "t", "z")

    def changed(rows: pa.Table) -> pa.Table:
        """Of four rows, two are deleted, one gets another key, and the others other values."""
        rows = with_values(rows.filter(pc.less(rows["c0"], 3)), c6="changed", c12=None)
        return rows.set_column(0, "c0", pc.if_else(pc.equal(rows["c0"], 2), 9, rows["c0"]))

    replace_rows(server, "t", changed)
    until_equal(connection, "t", "z")


def test_debezium_without_a_key_has_each_copy_of_a_row(
    server: ServerThread, connection: psycopg.Connection, kafka: MockCluster
) -> None:
    connection.execute("CREATE TABLE t (a int, b text)")
    connection.execute("INSERT INTO t VALUES (1, NULL), (1, NULL), (1, NULL), (NULL, NULL), (2, 'x'), (2, 'x')")
    topic = create_sink(connection, kafka, "FORMAT JSON ENVELOPE DEBEZIUM")
    kept = [(1, None), (2, "x"), (2, "x"), (2, "x"), (3, "y")]
    wanted = Counter({(1, None): 3, (None, None): 1, (2, "x"): 2})
    for count in (5, 2, 0, 0):
        while Counter(replayed(message_values(read_topic(kafka.address, topic)))) != wanted:
            sleep(0.005)
        new = pa.table([[a for a, _ in kept[:count]], [b for _, b in kept[:count]]], ["c0", "c1"])
        replace_rows(server, "t", lambda rows, new=new: new.cast(rows.schema))  # type: ignore[misc]
        wanted = Counter(kept[:count])
    messages = read_topic(kafka.address, topic)
    assert {message.key for message in messages} == {None}
    assert len({message.partition for message in messages}) > 1
    partition_of = {value: {m.partition for m in messages if value in (m.value or b"")} for value in (b"{}", b'"a":2')}
    assert len(partition_of[b'"a":2']) == 1


def test_keys_that_are_not_unique_stall_the_sink(
    server: ServerThread, connection: psycopg.Connection, kafka: MockCluster
) -> None:
    connection.execute("CREATE TABLE t (k int, v text)")
    connection.execute("INSERT INTO t VALUES (7, 'a'), (7, 'b'), (8, 'c')")
    topic = create_sink(connection, kafka, "KEY (k) FORMAT JSON ENVELOPE UPSERT")
    assert wait_until_stalled(connection) == 'several rows of "t" have the key (k)=(7)'
    assert read_topic(kafka.address, topic) == []
    connection.execute("DROP SINK s")
    create_sink(connection, kafka, "KEY (k) NOT ENFORCED FORMAT JSON ENVELOPE UPSERT")
    until_running(connection)
    connection.execute("DROP SINK s")
    replace_rows(server, "t", lambda rows: rows.slice(0, 1))
    topic = create_sink(connection, kafka, "KEY (k) FORMAT JSON ENVELOPE UPSERT")
    until_running(connection)
    connection.execute("INSERT INTO t VALUES (9, NULL), (9, NULL)")
    assert wait_until_stalled(connection) == 'several rows of "t" have the key (k)=(9)'
    assert message_values(read_topic(kafka.address, topic)) == [({"k": 7}, {"k": 7, "v": "a"})]


def test_the_last_row_of_a_key_that_is_not_enforced_is_written(
    server: ServerThread, connection: psycopg.Connection, kafka: MockCluster
) -> None:
    connection.execute("CREATE TABLE t (k int, v text)")
    topic = create_sink(connection, kafka, "KEY (k) NOT ENFORCED FORMAT JSON ENVELOPE UPSERT")
    until_running(connection)
    connection.execute("INSERT INTO t VALUES (7, 'a'), (7, 'b'), (8, 'c'), (8, 'c')")
    new = pa.table([[7, 7], ["c", "d"]], ["c0", "c1"])
    replace_rows(server, "t", lambda rows: new.cast(rows.schema))
    wanted = [({"k": 7}, {"k": 7, "v": "b"}), ({"k": 7}, {"k": 7, "v": "d"})]
    wanted += [({"k": 8}, {"k": 8, "v": "c"}), ({"k": 8}, None)]
    while (found := sorted(message_values(read_topic(kafka.address, topic)), key=lambda m: m[0]["k"])) != wanted:
        assert len(found) < len(wanted), found
        sleep(0.005)


def test_what_is_not_supported_is_refused(
    connection: psycopg.Connection, kafka: MockCluster, registry: Registry
) -> None:
    connection.execute('CREATE TABLE t (k int NOT NULL, "B c" text)')
    kafka.create_topic("refused")
    sink = "CREATE SINK s FROM t INTO KAFKA CONNECTION k"
    topic = f"{sink} (TOPIC 'refused')"
    json = "FORMAT JSON ENVELOPE UPSERT"
    for statement, state, message in (
        (f"{sink} (COMPRESSION TYPE 'lz4') {json}", "22023", "option TOPIC of a sink into Kafka is missing"),
        (f"{sink} (TOPIC 'x', PARTITION COUNT 1, TOPIC PARTITION COUNT 2) {json}", "42601", None),
        (f"{sink} (TOPIC 'x', TOPIC PARTITION COUNT 0) KEY (k) {json}", "22023", None),
        (f"{sink} (TOPIC 'x', COMPRESSION TYPE 'rar') KEY (k) {json}", "22023", None),
        (f"{sink} (TOPIC '{PROGRESS}') KEY (k) {json}", "22023", None),
        (f"{topic} {json}", "0A000", "ENVELOPE UPSERT of a sink requires a KEY"),
        (f"{topic} KEY (z) {json}", "42703", 'column "z" named in key does not exist'),
        (f"{topic} KEY (k)", "42601", "a sink into Kafka requires a FORMAT"),
        (f"{topic} KEY (k) FORMAT JSON", "0A000", "ENVELOPE NONE is not supported for sinks into Kafka"),
        (f"{topic} KEY (k) FORMAT TEXT ENVELOPE UPSERT", "0A000", "FORMAT TEXT is not supported for sinks"),
        (f"{topic} KEY (k) FORMAT JSON ENVELOPE MATERIALIZE", "0A000", None),
        (f"{topic} KEY (k) FORMAT JSON INCLUDE KEY ENVELOPE UPSERT", "0A000", None),
        (f"{topic} KEY (k) {AVRO} ENVELOPE UPSERT", "42602", 'column "B c" has a name that Avro does not allow'),
    ):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement.encode())
        assert caught.value.sqlstate == state, statement
        assert message in (None, caught.value.diag.message_primary), statement
    key_format = f"KEY (k) KEY {AVRO} VALUE {json}"
    registry.closed.add("refused-key")
    message = 'the schema is incompatible with the earlier versions of subject "refused-key"'
    refused(connection, f"{topic} {key_format}", "55000", message)
    registry.closed.clear()
    registry.failure = 500
    refused(connection, f"{topic} {key_format}", "08006", f'schema registry "{registry.url}" answered with status 500')
    registry.failure = None


def test_a_sink_is_shown_and_dropped(connection: psycopg.Connection, kafka: MockCluster) -> None:
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    kafka.create_topic("shown")
    create = "CREATE SINK {0}s FROM {0}t INTO KAFKA CONNECTION {0}k (TOPIC = 'shown', COMPRESSION TYPE = 'zstd', TRANSACTIONAL ID PREFIX = 'p-') KEY (k) NOT ENFORCED KEY FORMAT JSON VALUE FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION {0}r ENVELOPE UPSERT WITH (SNAPSHOT = false)"  # noqa: E501
    connection.execute(create.format("").encode())
    qualified = create.format(f"{connection.info.dbname}.public.")
    assert connection.execute("SHOW CREATE SINK s").fetchall()[0][-1] == qualified
    ((_, _, _, type, _, envelope, format, _),) = connection.execute("TABLE mz_sinks").fetchall()
    assert (type, envelope, format) == ("kafka", "upsert", "avro")
    refused(connection, "DROP CONNECTION r", "2BP01", "cannot drop connection r because other objects depend on it")
    until_running(connection)
    end = len(read_topic(kafka.address, PROGRESS))
    connection.execute("DROP SINK s")
    while (last := read_topic(kafka.address, PROGRESS)[end:]) == [] or last[-1].value is not None:
        sleep(0.005)


def test_errors_of_brokers_stall_the_sink(connection: psycopg.Connection, kafka: MockCluster) -> None:
    """Mock brokers do not hide aborted transactions, so that `broker/test_sinks.py` tests them on Apache Kafka."""
    connection.execute("CREATE TABLE t (k int NOT NULL, v text)")
    topic = create_sink(connection, kafka, "KEY (k) FORMAT JSON ENVELOPE UPSERT")
    until_running(connection)
    for number, (code, message) in enumerate(
        (
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, 'permission denied for topic "{}": '),
            (KafkaError.MSG_SIZE_TOO_LARGE, 'message too large for topic "{}"'),
            (KafkaError.INVALID_PRODUCER_EPOCH, 'another server writes to topic "{}" for the same sink'),
        )
    ):
        kafka.fail(Api.PRODUCE, [code])
        connection.execute("INSERT INTO t VALUES (%s, 'a')", (number,))
        # The messages of the two topics are sent in either order, and the first request fails.
        messages = (message.format(topic), message.format(PROGRESS))
        assert wait_until_stalled(connection).startswith(messages)
        until_running(connection)


@pytest.mark.parametrize("envelope", [Envelope.UPSERT, Envelope.DEBEZIUM])
async def test_a_sink_continues_after_restarts_in_the_middle(
    kafka: MockCluster, registry: Registry, tmp_path: Path, envelope: Envelope
) -> None:
    topic = f"restarts-{envelope}"
    kafka.create_topic(topic, 3)
    sink, values, random = sink_of(topic, envelope=envelope), dict[int, str | None](), Random(1)
    for restart in range(3):
        async with started(tmp_path, kafka, registry, sink) as (coordinator, sinks):
            for _ in range(10):
                await change(coordinator, values, random)
            if restart == 2:
                await until_written(coordinator, sinks)
            while sinks.running[SINK].frontier is None:
                await coordinator.frontiers.moved.wait()
    messages = message_values(read_topic(kafka.address, topic))
    if envelope is Envelope.UPSERT:
        assert {tuple(value.values()) for value in upserted(messages).values()} == set(values.items())
    else:
        assert replayed(messages) == dict.fromkeys(values.items(), 1)


@pytest.mark.parametrize("format", ["json", "avro"])
async def test_a_history_has_the_times_of_the_table_over_restarts(
    kafka: MockCluster, registry: Registry, tmp_path: Path, format: str
) -> None:
    topic = f"history-{format}"
    kafka.create_topic(topic, 3)
    sink, values, random = sink_of(topic, format, Envelope.MATERIALIZE), dict[int, str | None](), Random(2)
    begin = None
    for _ in range(2):
        async with started(tmp_path, kafka, registry, sink) as (coordinator, sinks):
            for _ in range(10):
                await change(coordinator, values, random)
            frontier = await until_written(coordinator, sinks)
            begin = begin or coordinator.log.times(TABLE.id, 0, frontier)[0]
            expected = Counter[tuple[Any, ...]]()
            for time in coordinator.log.times(TABLE.id, 0, frontier):
                for table in coordinator.log.tables(TABLE.id, time, time + 1):
                    for row in table.to_pylist():
                        expected[row["c0"], row["c1"], time] += row.get("diff", 1)
    messages = read_topic(kafka.address, topic)
    data = pa.array([message.value for message in messages], pa.binary())
    if format == "json":
        decoder: JsonDecoder | AvroDecoder = JsonDecoder(
            [EncodedColumn(c.name, parse_type(c.type)) for c in TABLE.columns]
        )
        found = decoder.decode(data)
    else:
        ((_, id),) = [(s, ids[-1]) for s, ids in registry.subjects.items() if s == f"{topic}-value"]
        decoder = AvroDecoder(CdcSchema.of(parse_schema(registry.schemas[id])))
        found = decoder.decode(data, 5)
    assert not found.failed.any()
    reader = Reader(decoder.schema)
    batch = reader.receive(found.updates, found.statements)
    assert batch is not None
    assert (batch.frontier >= frontier, reader.open_updates) == (True, 0)
    read = Counter[tuple[Any, ...]]()
    for row in batch.updates.to_pylist():
        read[row["c0"], row["c1"], row["time"]] += row["diff"]
    assert read == Counter({row: count for row, count in expected.items() if count})


async def test_two_servers_may_write_the_same_history(kafka: MockCluster, registry: Registry, tmp_path: Path) -> None:
    """A server and its copy write the same changes, with the same times, into one topic concurrently."""
    kafka.create_topic("both", 3)
    values, random = dict[int, str | None](), Random(3)
    async with started(tmp_path / "first", kafka, registry) as (first, _):
        for _ in range(20):
            await change(first, values, random)
        times = first.log.times(TABLE.id, 0, 2**62)
    copytree(tmp_path / "first", tmp_path / "second")
    sink = sink_of("both", "json", Envelope.MATERIALIZE, as_of=str(times[5]))
    async with (
        started(tmp_path / "first", kafka, registry, sink) as (first, sinks),
        started(tmp_path / "second", kafka, registry, sink) as (second, others),
    ):
        await until_written(first, sinks)
        await until_written(second, others)
    decoder = JsonDecoder([EncodedColumn(column.name, parse_type(column.type)) for column in TABLE.columns])
    data = pa.array([message.value for message in read_topic(kafka.address, "both")], pa.binary())
    found = decoder.decode(data)
    batch = Reader(decoder.schema).receive(found.updates, found.statements)
    assert batch is not None
    assert 2 * batch.updates.num_rows == found.updates.num_rows
    rows = Counter[tuple[Any, ...]]()
    for row in batch.updates.to_pylist():
        rows[row["c0"], row["c1"]] += row["diff"]
    assert {row: count for row, count in rows.items() if count} == dict.fromkeys(values.items(), 1)
    assert {row["time"] for row in batch.updates.to_pylist()} == set(times[5:])


async def test_the_progress_topic_must_have_the_frontier(
    kafka: MockCluster, registry: Registry, tmp_path: Path
) -> None:
    kafka.create_topic("forgotten")
    sink = sink_of("forgotten")
    async with started(tmp_path, kafka, registry, sink) as (coordinator, sinks):
        await until_written(coordinator, sinks)
    kafka.delete_records(PROGRESS, read_topic(kafka.address, PROGRESS)[-1].offset + 1)
    async with started(tmp_path, kafka, registry) as (coordinator, sinks):
        error = await until_stalled(coordinator, sinks, SINK)
    assert f'but its frontier in topic "{PROGRESS}" is missing' in error


async def test_a_sink_continues_when_the_broker_is_back(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "DOWN_S", 0.1)
    with MockCluster() as kafka:
        kafka.create_topic(PROGRESS)
        kafka.create_topic("down")
        async with started(tmp_path, kafka, registry, sink_of("down")) as (coordinator, sinks):
            await until_written(coordinator, sinks)
            kafka.stop_broker()
            await write(coordinator, (1, "a", 1))
            error = await until_stalled(coordinator, sinks, SINK)
            assert error.startswith(f'could not connect to Kafka at "{kafka.address}"')
            kafka.start_broker()
            await until_written(coordinator, sinks)
            assert message_values(read_topic(kafka.address, "down")) == [({"n": 1}, {"n": 1, "v": "a"})]


def test_a_column_chooses_the_partitions_and_the_headers(connection: psycopg.Connection, kafka: MockCluster) -> None:
    connection.execute("CREATE TABLE t (k bigint NOT NULL, p bigint, h jsonb)")
    connection.execute(
        """INSERT INTO t VALUES (1, 4, '{"a": "x", "b": null}'), (2, -1, NULL), (3, NULL, '{"a": "x"}')"""
    )
    topic = f"topic-{next(_numbers)}"
    kafka.create_topic(topic, 3)
    into = f"INTO KAFKA CONNECTION materialize.public.k (TOPIC = '{topic}', PARTITION BY = p) KEY (k) HEADERS h"
    into = into.replace("materialize", connection.info.dbname)
    name = f"{connection.info.dbname}.public"
    create = f"CREATE SINK {name}.s FROM {name}.t {into} FORMAT JSON ENVELOPE UPSERT"
    connection.execute(create.encode())
    while len(messages := read_topic(kafka.address, topic)) < 3:
        sleep(0.01)
    found = {json.loads(m.key or b"")["k"]: (m.partition, list(m.headers)) for m in messages}
    assert found == {1: (1, [("a", b"x"), ("b", None)]), 2: (2, []), 3: (0, [("a", b"x")])}
    shown = connection.execute("SHOW CREATE SINK s").fetchone()
    assert shown is not None
    assert shown[-1] == create
    connection.execute("DELETE FROM t WHERE k = 1")
    while len(messages := read_topic(kafka.address, topic)) < 4:
        sleep(0.01)
    assert [m.partition for m in messages if m.value is None] == [1]
    connection.execute("INSERT INTO t VALUES (4, 0, '[1]')")
    wait_until_stalled(connection)
    assert status_of(connection) == ("stalled", "invalid headers of a message: [1]")


@pytest.mark.parametrize(
    ("options", "rest", "state", "message"),
    [
        (", PARTITION BY v", "UPSERT", "42804", "argument of PARTITION BY must be type bigint, not type text"),
        (", PARTITION BY x", "UPSERT", "42703", 'column "x" does not exist'),
        (", PARTITION BY t.n", "UPSERT", "42P01", 'missing FROM-clause entry for table "t"'),
        (", PARTITION BY (SELECT 1)", "UPSERT", "0A000", "cannot use subquery in PARTITION BY"),
        (
            ", PARTITION BY n",
            "MATERIALIZE",
            "0A000",
            "PARTITION BY is not supported for sinks with ENVELOPE MATERIALIZE",
        ),
    ],
)
def test_what_partition_by_refuses(
    connection: psycopg.Connection, options: str, rest: str, state: str, message: str
) -> None:
    connection.execute("CREATE TABLE t (n bigint, v text)")
    key = "KEY (n)" if rest == "UPSERT" else ""
    into = f"INTO KAFKA CONNECTION k (TOPIC 'refused'{options}) {key} FORMAT JSON ENVELOPE {rest}"
    refused(connection, f"CREATE SINK s FROM t {into}", state, message)


@pytest.mark.parametrize(
    ("headers", "envelope", "state", "message"),
    [
        ("v", "UPSERT", "42804", 'column "v" of HEADERS must be type jsonb, not type text'),
        ("x", "UPSERT", "42703", 'column "x" named in HEADERS does not exist'),
        ("h", "DEBEZIUM", "0A000", "HEADERS of a sink requires ENVELOPE UPSERT"),
    ],
)
def test_what_headers_refuse(
    connection: psycopg.Connection, headers: str, envelope: str, state: str, message: str
) -> None:
    connection.execute("CREATE TABLE t (n bigint, v text, h jsonb)")
    into = f"INTO KAFKA CONNECTION k (TOPIC 'refused') KEY (n) HEADERS {headers} FORMAT JSON ENVELOPE {envelope}"
    refused(connection, f"CREATE SINK s FROM t {into}", state, message)


@pytest.mark.parametrize("format", ["FORMAT JSON", AVRO])
@pytest.mark.parametrize("envelope", ["MATERIALIZE", "DEBEZIUM"])
def test_the_columns_of_the_table_change(
    connection: psycopg.Connection, kafka: MockCluster, format: str, envelope: str
) -> None:
    """Readers ignore an added column. They could not find the rows that a change without a column removes."""
    connection.execute("CREATE TABLE t (n bigint NOT NULL, v text)")
    connection.execute("INSERT INTO t VALUES (1, 'a')")
    key = "" if envelope == "MATERIALIZE" else "KEY (n)"
    topic = create_sink(connection, kafka, f"{key} {format} ENVELOPE {envelope} WITH (PROGRESS INTERVAL '20 ms')")
    until_running(connection)
    read = "DEBEZIUM UPSERT" if envelope == "DEBEZIUM" else envelope
    source = f"FROM KAFKA CONNECTION k (TOPIC '{topic}') {format} ENVELOPE {read}"
    columns = "" if format == AVRO else "(n bigint, v text)"
    if envelope == "MATERIALIZE" or format == AVRO:
        connection.execute(f"CREATE SOURCE copy {columns} {source}".encode())
        until_equal(connection, "t", "copy")
    connection.execute("ALTER TABLE t ADD COLUMN w int")
    connection.execute("INSERT INTO t VALUES (2, 'b', 3)")
    connection.execute("DELETE FROM t WHERE n = 1")
    if envelope == "MATERIALIZE" or format == AVRO:
        connection.execute("CREATE TABLE expected (n bigint, v text)")
        connection.execute("INSERT INTO expected VALUES (2, 'b')")
        until_equal(connection, "expected", "copy")
    connection.execute("ALTER TABLE t DROP COLUMN v")
    connection.execute("DELETE FROM t WHERE n = 2")
    assert 'column "v" was dropped or renamed' in wait_until_stalled(connection)
