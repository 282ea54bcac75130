"""A Kafka cluster for tests: librdkafka's mock brokers in a process of their own, with injected faults.

    with MockCluster() as kafka:
        kafka.create_topic("orders", partitions=2)
        kafka.produce("orders", [Record(b"key", b"value")])

`python -m tests.kafka.mock_cluster` is the process. It reads one JSON array per line, `[function, arguments...]`, calls
`rd_kafka_mock_<function>` of the librdkafka in confluent-kafka's wheel, and writes the result as a line.

The mock brokers keep at most 5 MiB and 100,000 messages of a partition. They do not compact topics, do not find offsets
by timestamp, and do not hide the messages of aborted transactions.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any

import confluent_kafka

from tests.kafka.records import Record, produce


class Api(IntEnum):
    """Kafka's requests, whose answers `fail` replaces by errors."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3


class MockCluster:
    """A running cluster with one broker. A context manager, which ends the process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.mock_cluster"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        self.address: str = json.loads(self._process.stdout.readline())

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def produce(self, topic: str, records: Iterable[Record], **options: Any) -> None:
        """Appends the records and waits until all of them are acknowledged. `options`: of the producer."""
        produce(self.address, topic, records, **options)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        self._call("topic_create", topic, partitions, 1)

    def delete_topic(self, topic: str) -> None:
        self._call("topic_delete", topic)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Deletes the messages before an offset, as retention does."""
        self._call("partition_delete_records", topic, partition, before)

    def stop_broker(self) -> None:
        self._call("broker_set_down", 1)

    def start_broker(self) -> None:
        self._call("broker_set_up", 1)

    def fail(self, api: Api, errors: Sequence[int]) -> None:
        """Answers the next requests of this kind with these errors (`confluent_kafka.KafkaError` codes)."""
        self._call("push_request_errors_array", int(api), list(errors))

    def _call(self, *command: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer == 0, f"{command}: {answer}"


# -- the process ----------------------------------------------------------------------------------------------------


def _library() -> Any:
    """The librdkafka of confluent-kafka's wheel."""
    directory = Path(confluent_kafka.__file__).parents[1]
    (path,) = (directory / "confluent_kafka.libs").glob("librdkafka-*")
    library = ctypes.CDLL(str(path))
    for name, result in (("conf_new", ctypes.c_void_p), ("new", ctypes.c_void_p)):
        getattr(library, f"rd_kafka_{name}").restype = result
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def _argument(value: Any) -> Sequence[Any]:
    match value:
        case str():
            return [ctypes.c_char_p(value.encode())]
        case list():
            return [ctypes.c_size_t(len(value)), (ctypes.c_int * len(value))(*value)]
        case _:
            return [ctypes.c_int64(value)]


def main() -> None:
    library = _library()
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    error = ctypes.create_string_buffer(512)
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, error, ctypes.c_size_t(len(error))))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    print(json.dumps(library.rd_kafka_mock_cluster_bootstraps(cluster).decode()), flush=True)
    for line in sys.stdin:
        name, *values = json.loads(line)
        function = getattr(library, f"rd_kafka_mock_{name}")
        returns = not name.startswith("push_request_errors")
        function.restype = ctypes.c_int if returns else None
        result = function(cluster, *(argument for value in values for argument in _argument(value)))
        print(json.dumps(result if returns else 0), flush=True)


if __name__ == "__main__":
    main()
