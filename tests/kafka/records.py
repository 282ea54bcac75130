"""Messages to produce."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka


@dataclass(frozen=True, slots=True)
class Record:
    """A message to produce."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=tuple)
    timestamp: int = 0


def produce(address: str, topic: str, records: Iterable[Record], **options: Any) -> None:
    """Appends the records and waits until all of them are acknowledged. `options`: of the producer."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 1, **options})
    send(producer, topic, records)


def send(producer: confluent_kafka.Producer, topic: str, records: Iterable[Record]) -> None:
    """Appends the records with a producer and waits until all of them are acknowledged."""
    errors: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=lambda error, _: errors.append(error) if error else None,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors, errors
