"""The Kafka actions on mock brokers and a schema registry. The scripts contain no SQL, so there is no server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from testdrive import Options, run_file
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.records import Record
from tests.kafka.registry import Registry

pytestmark = pytest.mark.slow

SEED = 7
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with Registry().serving() as serving:
        yield serving


class Scripts:
    """Runs texts as `.td` files. `topic` creates a topic whose name in scripts is `t`."""

    def __init__(self, kafka: MockCluster, registry: Registry, directory: Path, seed: int) -> None:
        self.kafka = kafka
        self.registry = registry
        self.seed = seed
        self.path = directory / "script.td"
        self.options = Options(
            "postgres://nobody@127.0.0.1:1/x",
            kafka_addr=kafka.address,
            schema_registry_url=registry.url,
            seed=seed,
            default_timeout_s=20,
            reset=False,
        )

    def topic(self, partitions: int = 1) -> str:
        name = f"testdrive-t-{self.seed}"
        self.kafka.create_topic(name, partitions)
        return name

    async def passes(self, text: str, **options: Any) -> None:
        self.path.write_text(text)
        failures = await asyncio.to_thread(run_file, self.path, replace(self.options, **options))
        assert not failures, str(failures[0])

    async def fails(self, text: str, line: int, *parts: str, **options: Any) -> None:
        self.path.write_text(text)
        [failure] = await asyncio.to_thread(run_file, self.path, replace(self.options, **options))
        assert failure.line == line, str(failure)
        for part in parts:
            assert part in failure.message, failure.message


_seeds = iter(range(1, 10_000))


@pytest.fixture
def scripts(kafka: MockCluster, registry: Registry, tmp_path: Path) -> Scripts:
    return Scripts(kafka, registry, tmp_path, next(_seeds))


def consumed(kafka: MockCluster, topic: str, count: int, partition: int = 0) -> list[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "g"})
    consumer.list_topics(topic)  # without it, the first fetch waits until the consumer looks for the leader
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 0.2)
    consumer.close()
    return found


async def test_ingested_bytes(scripts: Scripts) -> None:
    topic = scripts.topic(2)
    await scripts.passes(
        "$ kafka-ingest topic=t format=bytes key-format=bytes partition=1 timestamp=5 repeat=2 start-iteration=3\n"
        '  headers=[{"a": "é", "b": null}, {"a": [0, 255]}]\n'
        "k${kafka-ingest.iteration}:v:w\n:\\x00\nk:\n"
    )
    found = consumed(scripts.kafka, topic, 6, 1)
    pairs = [(b"k3", b"v:w"), (None, b"\0"), (b"k", None), (b"k4", b"v:w"), (None, b"\0"), (b"k", None)]
    assert [(m.key(), m.value()) for m in found] == pairs
    assert {m.timestamp()[1] for m in found} == {5}
    assert found[0].headers() == [("a", "é".encode()), ("b", None), ("a", b"\0\xff")]


async def test_a_script_keeps_its_producer(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the timeout changes, which is an option of the producer."""
    create, made = confluent_kafka.Producer, []

    def created(options: dict[str, Any]) -> confluent_kafka.Producer:
        made.append(options["message.timeout.ms"])
        return create(options)

    monkeypatch.setattr(confluent_kafka, "Producer", created)
    topic = scripts.topic()
    ingest = "$ kafka-ingest topic=t format=bytes\n"
    await scripts.passes(f"{ingest}a\n{ingest}b\n$ set-sql-timeout duration=30s\n{ingest}c\n{ingest}d\n")
    assert made == [20_000, 30_000]
    assert [message.value() for message in consumed(scripts.kafka, topic, 4)] == [b"a", b"b", b"c", b"d"]


async def test_ingested_avro_has_registered_schemas(scripts: Scripts) -> None:
    topic = scripts.topic()
    await scripts.passes(
        f'$ kafka-ingest topic=t format=avro schema={SCHEMA} key-format=avro key-schema="\\"int\\""\n'
        '  set-schema-id-var=v set-key-schema-id-var=k\n1 {"a": 2}\n2\n<null> {"a": 3}\n'
        "$ kafka-ingest topic=t format=bytes\n${k} ${v}\n"
        '$ kafka-ingest topic=t format=bytes key-format=avro key-schema="\\"int\\""\n1 text\n'
        f"$ kafka-ingest topic=t format=avro schema={SCHEMA} confluent-wire-format=false\n" + '{"a": 4}\n'
    )
    assert scripts.registry.subjects == {f"{topic}-key": [1], f"{topic}-value": [2]}
    found = [(m.key(), m.value()) for m in consumed(scripts.kafka, topic, 6)]
    key = b"\0\0\0\0\1"
    assert found == [
        (key + b"\2", b"\0\0\0\0\2\4"),
        (key + b"\4", None),
        (None, b"\0\0\0\0\2\6"),
        (None, b"1 2"),
        (key + b"\2", b" text"),
        (None, b"\x08"),
    ]


async def test_a_subject_and_parts_that_are_omitted(scripts: Scripts) -> None:
    topic = scripts.topic()
    ingest = f"$ kafka-ingest topic=t format=avro schema={SCHEMA} key-format=json schema-id-subject=other"
    await scripts.passes(f'{ingest} omit-key\n{{"a": 1}}\n{ingest} omit-value=true\n{{"k":  1}}\n')
    assert list(scripts.registry.subjects) == ["other"]
    found = [(m.key(), m.value()) for m in consumed(scripts.kafka, topic, 2)]
    assert found == [(None, b"\0\0\0\0\1\2"), (b'{"k":  1}', None)]


async def test_published_schemas_and_references(scripts: Scripts) -> None:
    topic = scripts.topic()
    outer = '{"type": "record", "name": "outer", "fields": [{"name": "r", "type": "r"}]}'
    await scripts.passes(
        f"$ schema-registry-publish subject=r schema-type=avro\n{SCHEMA}\n"
        f"$ schema-registry-publish subject=outer schema-type=avro references=r\n{outer}\n"
        f"$ kafka-ingest topic=t format=avro schema={outer} references=r\n" + '{"r": {"a": 1}}\n'
        '$ kafka-verify-data topic=t format=avro key=false\n{"r": {"a": 1}}\n'
    )
    assert scripts.registry.schemas == {1: SCHEMA, 2: outer}
    assert scripts.registry.references == {2: [{"name": "r", "subject": "r", "version": 1}]}
    assert consumed(scripts.kafka, topic, 1)[0].value() == b"\0\0\0\0\2\2"


async def test_verified_messages(scripts: Scripts) -> None:
    topic = scripts.topic(2)
    records = [
        Record(b"1", b'{"b":1.0,"a":2}', 0, [("h", b"x y"), ("i", None)]),
        Record(None, None, 1),
        Record(b"3", b"[]", 0),
    ]
    scripts.kafka.produce(topic, records)
    verify = "$ kafka-verify-data topic=t format=json"
    await scripts.passes(f'{verify}\n1 {{"a":2,"b":1}}\n3 []\n<null> <null>\n')
    await scripts.passes(f'{verify} sort-messages=true\n<null> <null>\n3 []\n1 {{"a":2,"b":1}}\n')
    await scripts.passes(f"{verify} partial-search=99\n3 []\n<null> <null>\n")
    await scripts.passes(
        f'{verify} headers=h,i\nx\\x20y <null> 1 {{"a":2,"b":1}}\n<null> <null> 3 []\n<null> <null> <null>\n'
    )
    await scripts.passes(
        "$ kafka-verify-data topic=t key-format=bytes value-format=bytes\n" + '1:{"b":1.0,"a":2}\n3:[]\n:\n'
    )
    await scripts.fails(f"\n{verify} key=false\n[]\n", 2, "the messages differ", '+{"a": 2, "b": 1}', "+<null>")
    await scripts.fails(f"{verify} partial-search=2\n<null>\n", 1, "the messages differ")
    await scripts.fails(f"{verify} headers=h,i\nx\n", 1, "message 1, 'x': needs a value for each of the 2 headers")
    await scripts.fails(f"{verify} key=false\n[]\n[]\n[]\n[]\n", 1, "differ", default_timeout_s=3)


async def test_rewriting_writes_the_messages_into_the_script(scripts: Scripts) -> None:
    topic = scripts.topic()
    scripts.kafka.produce(topic, [Record(b"a", b"\0"), Record(None, b"")])
    await scripts.passes("$ kafka-verify-data topic=t format=bytes\nwrong\n# end\n", rewrite=True)
    assert scripts.path.read_text() == "$ kafka-verify-data topic=t format=bytes\na:\\0\n:\n# end\n"


async def test_messages_that_cannot_be_shown(scripts: Scripts) -> None:
    topic = scripts.topic()
    scripts.kafka.produce(topic, [Record(None, b"{")])
    await scripts.fails("$ kafka-verify-data topic=t format=json key=false\n1", 1, "message 1 of the topic: ")
    await scripts.fails("$ kafka-verify-data topic=t format=avro key=false\n1", 1, "does not begin with a zero byte")


async def test_topics_of_brokers_without_a_controller(scripts: Scripts) -> None:
    topic = scripts.topic(2)
    create = "$ kafka-create-topic topic=t partitions=2\n"
    await scripts.passes(create, reset=False)
    await scripts.passes("$ kafka-create-topic topic=new partitions=4\n$ kafka-ingest topic=new format=bytes\na\n")
    await scripts.passes("$ kafka-create-topic topic=other\n", kafka_default_partitions=4)
    await scripts.fails("\n$ kafka-create-topic topic=t", 2, f"topic {topic}", "exists with 2, not with 1 partitions")
    await scripts.fails("$ kafka-create-topic topic=x compaction=true", 1, "have no controller", "no configuration")
    await scripts.fails("$ kafka-add-partitions topic=t total-partitions=3", 1, "have no controller")
    await scripts.fails("$ kafka-delete-topic-flaky topic=t", 1, "have no controller")
    await scripts.fails(f"$ kafka-ingest topic=t format=bytes\na\n{create}", 3, "exists with 1 messages")


async def test_variables(scripts: Scripts) -> None:
    text = "$ set-regex match=x\n$ schema-registry-publish subject=${testdrive.kafka-addr} schema-type=json\n"
    await scripts.passes(text + '{"url": "${testdrive.schema-registry-url}"}\n')
    assert list(scripts.registry.subjects) == [scripts.kafka.address]
    assert scripts.registry.schemas == {1: f'{{"url": "{scripts.registry.url}"}}'}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("kafka-create-topic", "needs the argument topic"),
        ("kafka-create-topic topic=t partitions=0", "partitions is a number from 1"),
        ("kafka-create-topic topic=t compaction=maybe", "compaction is true or false"),
        ("kafka-add-partitions topic=t total-partitions=x", "total-partitions is a number from 1"),
        ("kafka-ingest topic=t", "needs the argument format"),
        ("kafka-ingest topic=t format=protobuf", "format is one of avro, json, bytes, not 'protobuf'"),
        ("kafka-ingest topic=t format=bytes key-format=x", "key-format is one of"),
        ("kafka-ingest topic=t format=avro", "format=avro needs the argument schema"),
        ("kafka-ingest topic=t format=bytes key-format=avro", "key-format=avro needs the argument key-schema"),
        ("kafka-ingest topic=t format=bytes schema=1", "schema needs format=avro"),
        ("kafka-ingest topic=t format=avro schema={}", "schema: the Avro schema is not valid"),
        ("kafka-ingest topic=t format=bytes key-terminator=|", "key-terminator needs key-format=bytes"),
        ("kafka-ingest topic=t format=bytes key-format=bytes key-terminator=", "key-terminator is empty"),
        ("kafka-ingest topic=t format=bytes partition=-1", "partition is a number from 0"),
        ("kafka-ingest topic=t format=bytes timestamp=now", "timestamp is a number from 1"),
        ("kafka-ingest topic=t format=bytes headers=1", "headers is a JSON object"),
        ('kafka-ingest topic=t format=bytes headers={"a": 1}', "headers is a JSON object"),
        ("kafka-ingest topic=t format=bytes partition=9\na", "cannot write to the topic"),
        ("kafka-ingest topic=t format=json\n1\n{", "message 2, '{': not JSON"),
        ("kafka-ingest topic=t format=json\n1 2", "message 1, '1 2': unexpected text at its end: 2"),
        ("kafka-ingest topic=t format=bytes\n\\${kafka-ingest.x}", "variable ${kafka-ingest.x} is not set"),
        (f'kafka-ingest topic=t format=avro schema={SCHEMA}\n{{"b": 1}}', "the value lacks the field a"),
        ("kafka-ingest topic=missing format=bytes\na", "there is no topic testdrive-missing-"),
        ("kafka-verify-data topic=missing format=bytes\na", "there is no topic testdrive-missing-"),
        ("kafka-verify-data topic=t", "needs either the argument format or value-format"),
        ("kafka-verify-data topic=t value-format=json key=true", "needs the argument key-format"),
        ("kafka-verify-data sink=s format=json", "needs the argument topic"),
        ("schema-registry-publish subject=s schema-type=xml\n1", "schema-type is one of avro, json, protobuf"),
        (
            "schema-registry-publish subject=s schema-type=avro references=no\n1",
            "answered GET /subjects/no/versions/latest with 404",
        ),
    ],
)
async def test_misused_actions(scripts: Scripts, action: str, reason: str) -> None:
    scripts.topic()
    await scripts.fails(f"\n$ {action}", 2, reason)


async def test_systems_that_cannot_be_reached(scripts: Scripts) -> None:
    nowhere = {"kafka_addr": "127.0.0.1:1", "schema_registry_url": "http://127.0.0.1:1", "default_timeout_s": 0.2}
    await scripts.fails(
        "$ kafka-ingest topic=t format=bytes\na", 1, "cannot reach Kafka at 127.0.0.1:1 (--kafka-addr)", **nowhere
    )
    publish = "$ schema-registry-publish subject=s schema-type=avro\n1"
    await scripts.fails(publish, 1, "cannot use the schema registry at http://127.0.0.1:1 (--schema-reg", **nowhere)
    await scripts.fails(publish, 1, "begins neither with http://", schema_registry_url="ftp://x")
