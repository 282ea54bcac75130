"""`engine.py KAFKA REGISTRY POSTGRES_PORT NAME`: Debezium, from a PostgreSQL to topics `NAME.<schema>.<table>`.

The interpreter of `.venv/debezium` runs it, which has Debezium's jars (`make test-kafka`). Its position is in Kafka, as
with Kafka Connect. It is stored every OFFSETS_MS, so that a process that is killed repeats what it has written since.
"""

from __future__ import annotations

import sys
from typing import Any

import confluent_kafka
from pydbzengine import BasePythonChangeHandler, DebeziumEngine

OFFSETS_MS = 1_000


class Writer(BasePythonChangeHandler):
    """Writes messages as they are to the topics that Debezium names."""

    def __init__(self, address: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 1, "acks": "all"})

    def handleJsonBatch(self, records: Any) -> None:
        for record in records:
            key, value = record.key(), record.value()
            self._producer.produce(
                str(record.destination()), None if value is None else bytes(value), None if key is None else bytes(key)
            )
        assert self._producer.flush(60) == 0


def main(kafka: str, registry: str, port: str, name: str) -> None:
    import jpype
    from pydbzengine.engine.jvm import ensure_jvm_started

    ensure_jvm_started(jvm_opts=["-Xmx512m", "-XX:TieredStopAtLevel=1"])
    properties = {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": port,
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "schema.include.list": "public",
        "provide.transaction.metadata": "true",
        "poll.interval.ms": "20",
        "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
        "offset.storage.topic": f"{name}.offsets",
        "offset.storage.partitions": "1",
        "offset.storage.replication.factor": "1",
        "offset.flush.interval.ms": str(OFFSETS_MS),
        "bootstrap.servers": kafka,
        "key.converter.schema.registry.url": registry,
        "value.converter.schema.registry.url": registry,
    }
    DebeziumEngine(properties, Writer(kafka), format=jpype.JClass("io.debezium.engine.format.Avro")).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
