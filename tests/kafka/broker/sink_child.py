"""`python -m tests.kafka.broker.sink_child DIRECTORY KAFKA REGISTRY NAME COUNT`: random changes, which sinks follow.

The sinks write the topics `NAME-upsert`, `NAME-debezium` and `NAME-materialize`. The table keeps all history. The
process ends when COUNT changes are in all topics.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from catalog.ids import ObjectId
from catalog.objects.sinks import Sink
from catalog.source_definition import Envelope
from tests.kafka.registry import Registry
from tests.kafka.sinks import define, sink_of
from tests.server.egress.child import running
from tests.server.egress.postgres.child import follow

FORMATS = {Envelope.UPSERT: "json", Envelope.DEBEZIUM: "avro", Envelope.MATERIALIZE: "avro"}


def sinks_of(name: str) -> list[Sink]:
    return [
        replace(sink_of(f"{name}-{envelope}", format, envelope), id=ObjectId(f"u{20 + n}"), name=f"s{n}")
        for n, (envelope, format) in enumerate(FORMATS.items())
    ]


async def main(directory: Path, kafka: str, url: str, name: str, count: int) -> None:
    registry = Registry()
    registry.url = url
    coordinator, sinks = running(directory / "data")
    await coordinator.start()
    await define(coordinator, kafka, registry, *sinks_of(name))
    await follow(coordinator, sinks, count)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])))
