"""Kafka and a schema registry of the attacker: enormous schemas, many of them, and messages that are slow to decode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import errors

from protocol.avro.varints import varint_bytes
from tests.attacks.clients import resident_bytes, watched
from tests.attacks.test_hostile_messages import bounded
from tests.attacks.test_sources import sql, status  # noqa: F401
from tests.fix_server import ServerProcess
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.records import Record
from tests.kafka.registry import Registry, RegistryThread
from tests.kafka.test_upstream import framed
from tests.polling import until

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
CREATE = """
    CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't')
    FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION c ENVELOPE NONE
"""


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": type} for name, type in fields]}


ENORMOUS = record(("a", "int"), *[(f"f{number}", "int") for number in range(18_000)])


@pytest.fixture
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic("t", 1)
        yield cluster


@pytest.fixture
def registry() -> Iterator[Registry]:
    with RegistryThread() as registry:
        yield registry


@pytest.fixture
def client(sql: psycopg.Connection[Any], kafka: MockCluster, registry: Registry) -> Iterator[psycopg.Connection[Any]]:  # noqa: F811
    """A session with connections to both."""
    sql.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}', SECURITY PROTOCOL PLAINTEXT)".encode())
    sql.execute(f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}')".encode())
    yield sql
    sql.execute("DROP CONNECTION k CASCADE")


def committed(client: psycopg.Connection[Any]) -> int:
    (row,) = client.execute("SELECT updates_committed FROM mz_internal.mz_source_statistics").fetchall()
    return int(row[0])


def test_an_enormous_schema(client: psycopg.Connection[Any], registry: Registry, own_server: ServerProcess) -> None:
    for schema, error in (
        (ENORMOUS, errors.TooManyColumns),
        (record(("e", {"type": "enum", "name": "e", "symbols": [f"s{n}" for n in range(300_000)]})), None),
        (record(*[(f"f{number}", "int") for number in range(90_000)]), errors.FeatureNotSupported),
        (record(("u", ["int"] * 400_000)), errors.FeatureNotSupported),
    ):
        registry.register("t-value", schema)
        with watched(own_server):
            if error is None:
                client.execute(CREATE)
                client.execute("DROP SOURCE s")
            else:
                with pytest.raises(error):
                    client.execute(CREATE)


def test_messages_with_many_enormous_schemas(
    client: psycopg.Connection[Any], kafka: MockCluster, registry: Registry, own_server: ServerProcess
) -> None:
    registry.register("t-value", record(("a", "int")))
    client.execute(CREATE)
    before = resident_bytes(own_server.process.pid)
    count = 12
    text = json.dumps(ENORMOUS)
    for number in range(count):
        registry.schemas[100 + number] = text + " " * number
    with watched(own_server):
        messages = [framed(100 + number, bytes(18_001)) for number in range(count)]
        kafka.produce("t", [Record(None, message) for message in (*messages, framed(1, b"\2"))])
        until(lambda: committed(client) == count + 1)
    assert resident_bytes(own_server.process.pid) - before < 300 * MIB
    assert status(client)[0] == "running"


def test_a_message_that_is_long_when_it_is_decompressed(
    client: psycopg.Connection[Any], kafka: MockCluster, own_server: ServerProcess
) -> None:
    """A broker, whose limit applies to the compressed message, would accept a gigabyte."""
    client.execute("CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT BYTES ENVELOPE NONE")
    before = resident_bytes(own_server.process.pid)
    with watched(own_server, pause_max_s=0.5):
        configuration = {"bootstrap.servers": kafka.address, "compression.type": "gzip", "message.max.bytes": 10**9}
        producer = Producer(configuration)
        producer.produce("t", b"small")
        producer.flush(60)
        until(lambda: committed(client) == 1)
        producer.produce("t", bytes(200 * MIB))
        producer.flush(60)
        until(lambda: status(client)[0] == "failed")
        assert resident_bytes(own_server.process.pid) - before < 500 * MIB
    assert status(client)[1].startswith('message at offset 1 of partition 0 of topic "t" is too long')


@pytest.mark.long
def test_messages_with_which_workers_fail(
    client: psycopg.Connection[Any], kafka: MockCluster, registry: Registry, own_server: ServerProcess
) -> None:
    """Each item has a byte, and a name of 4,000 characters when it is decoded. The other messages are decoded."""
    item = {"type": "record", "name": "i", "fields": [{"name": "x" * 4_000, "type": "boolean"}]}
    id = registry.register("t-value", record(("a", {"type": "array", "items": item}), ("b", "bytes")))
    client.execute(CREATE)
    rest = b"\0" + varint_bytes(300_000) + bytes(300_000)
    few, many = (varint_bytes(count) + bytes(count) + rest for count in (1, 20_000))
    with bounded(own_server):
        kafka.produce("t", [Record(None, framed(id, value)) for value in (few, many, few)])
        until(lambda: committed(client) == 2, 120)
    statistics = "SELECT invalid_messages, last_invalid_message FROM mz_internal.mz_source_statistics"
    place, reason = f'Topic "t", partition 0, offset 1, schema id {id}', "message of 320012 bytes could not be decoded"
    assert client.execute(statistics.encode()).fetchall() == [(1, f"{place}: Decode error: {reason}: out of memory")]
    kafka.produce("t", [Record(None, framed(id, bytes(2)))])
    until(lambda: committed(client) == 3)


def test_messages_that_are_slow_to_decode(
    client: psycopg.Connection[Any], kafka: MockCluster, registry: Registry, own_server: ServerProcess
) -> None:
    """Nested values are decoded one by one."""
    item = {"type": "record", "name": "i", "fields": [{"name": "x", "type": {"type": "array", "items": "int"}}]}
    id = registry.register("t-value", record(("a", {"type": "array", "items": item})))
    client.execute(CREATE)
    count = 100_000
    block = bytes((0xC0, 0x9A, 0x0C)) + b"\2\2\0" * count + b"\0"  # each item is an array of one number
    with watched(own_server):
        kafka.produce("t", [Record(None, framed(id, block)) for _ in range(2)])
        until(lambda: committed(client) == 2)
        assert status(client) == ("running", "")
