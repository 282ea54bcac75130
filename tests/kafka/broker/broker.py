"""Apache Kafka in a process of its own: one node, which is broker and controller, on the loopback interface.

It has a listener without encryption, and several with TLS.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from server.spark.embedded.java_runtime import find_java
from tests.kafka.records import Record, produce
from tests.server.authentication.certificates import Authority

JARS = Path(sys.prefix) / "kafka"  # `make test-kafka` fills it
CLUSTER = "dGlkZXdpcmUtdGVzdGluZw"  # 16 bytes; a random one may begin with "-", which the command line refuses
START_S = 60.0
REQUEST_S = 30.0
_NOT_LEADING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)

LISTENERS = ("PLAINTEXT", "SSL", "MUTUAL", "EXPIRED", "SASL")
"""`MUTUAL` asks clients for a certificate, `EXPIRED` has an expired one, and `SASL` asks for USER and PASSWORD."""
USER, PASSWORD = "tidewire", "correct-horse"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MUTUAL:SSL,EXPIRED:SSL,SASL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={directory}/expired.pem
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=\
    org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dir={directory}/data
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
        controller, *ports = _free_ports(1 + len(LISTENERS))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports, strict=True)}
        self.address = self.addresses["PLAINTEXT"]
        self.authority = Authority(directory)
        """Of the brokers' certificates, and of clients'."""
        for name in ("server", "expired"):
            _write_keystore(directory / f"{name}.pem", *self.authority.server(name, expired=name == "expired"))
        self._settings = directory / "server.properties"
        listeners = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
        settings = _SETTINGS.format(
            listeners=listeners,
            controller=controller,
            directory=directory,
            authority=self.authority.file,
            user=USER,
            password=PASSWORD,
        )
        self._settings.write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None
        storage = ["kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", CLUSTER]
        for mechanism in SCRAM:
            storage += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
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
        """The offset after the last message. Waits until the broker leads the partition after a restart."""
        deadline = monotonic() + START_S
        while True:
            (found,) = self.admin.list_offsets({TopicPartition(topic, partition): OffsetSpec.latest()}).values()
            try:
                return int(found.result().offset)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_LEADING or monotonic() > deadline:
                    raise
                self.admin.list_topics(topic, timeout=REQUEST_S)  # else the client asks with an old epoch of the leader


def _java(*command: str) -> list[str]:
    """The command line of one of Kafka's programs."""
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(find_java().executable), *options, "-cp", f"{JARS}/*", *command]


def _write_keystore(path: Path, certificate: Path, key: Path) -> None:
    """A certificate and its key as Kafka reads them."""
    found = load_pem_private_key(key.read_bytes(), None)
    path.write_bytes(found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.read_bytes())


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
