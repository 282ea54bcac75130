"""Apache Kafka in a process of its own: one node, which is broker and controller, on the loopback interface."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from server.spark.embedded.java_runtime import find_java
from tests.kafka.records import Record, produce

JARS = Path(sys.prefix) / "kafka"  # `make test-kafka` fills it
CLUSTER = "dGlkZXdpcmUtdGVzdGluZw"  # 16 bytes; a random one may begin with "-", which the command line refuses
START_S = 60.0
REQUEST_S = 30.0

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
log.dir={directory}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# A broker that starts again after kill -9 must not wait until its earlier registration expires.
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
message.max.bytes=16777216
"""


class KafkaBroker:
    """A broker with the data in `directory`. Its address stays the same when it is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = _free_ports(2)
        self.address = f"127.0.0.1:{ports[0]}"
        self._settings = directory / "server.properties"
        settings = _SETTINGS.format(broker=ports[0], controller=ports[1], directory=directory / "data")
        self._settings.write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None
        storage = ["kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", CLUSTER]
        with self._log() as log:
            subprocess.run(
                _java(*storage, "--config", str(self._settings)),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.start()

    def _log(self) -> Any:
        return (self._directory / "kafka.log").open("ab")

    def start(self) -> None:
        """Starts the process, and returns when it answers."""
        with self._log() as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._settings)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.admin = AdminClient({"bootstrap.servers": self.address, "reconnect.backoff.max.ms": 200, "log_level": 2})
        while True:
            try:
                self.admin.list_topics(timeout=START_S)
                return
            except KafkaException:
                assert self._process.poll() is None, (self._directory / "kafka.log").read_text()[-5_000:]

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Sends SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def produce(self, topic: str, records: Iterable[Record], **options: Any) -> None:
        """Appends the records and waits until all of them are acknowledged. `options`: of the producer."""
        produce(self.address, topic, records, **options)

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """`settings`: of the topic, with underscores instead of dots."""
        new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in settings.items()})
        self.admin.create_topics([new], operation_timeout=REQUEST_S)[topic].result()

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)], operation_timeout=REQUEST_S)[topic].result()

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic], operation_timeout=REQUEST_S)[topic].result()

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Deletes the messages before an offset, as retention does."""
        (deleted,) = self.admin.delete_records([TopicPartition(topic, partition, before)]).values()
        deleted.result()

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last message."""
        (found,) = self.admin.list_offsets({TopicPartition(topic, partition): OffsetSpec.latest()}).values()
        return int(found.result().offset)


def _java(*command: str) -> list[str]:
    """The command line of one of Kafka's programs."""
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(find_java().executable), *options, "-cp", f"{JARS}/*", *command]


def _free_ports(count: int) -> list[int]:
    """Ports that no process listens on.

    They are below those that the system assigns to connections: otherwise a client that tries to reach a broker that is
    down could be assigned the broker's own port.
    """
    first_assigned = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, first_assigned)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
