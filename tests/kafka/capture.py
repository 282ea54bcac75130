"""Messages that Debezium wrote: tests/data/debezium.

Debezium 3.6.3 wrote them from PostgreSQL 15 with Avro in Confluent's wire format, `provide.transaction.metadata=true`,
and REPLICA IDENTITY FULL for `customers`, DEFAULT for `orders`. Line 1 of the file has the schemas by id. Each topic
has a snapshot and then changes, tombstones among them.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[1] / "data/debezium/postgres15_debezium3.6.3_avro_confluent_wire.jsonl.gz"
CUSTOMERS, ORDERS, TRANSACTIONS = "kc.public.customers", "kc.public.orders", "kc.transaction"


@dataclass(frozen=True, slots=True)
class Captured:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def captured() -> tuple[dict[int, str], list[Captured]]:
    """Returns the schemas by id, as JSON text, and the messages in the order of their offsets within each topic."""
    with gzip.open(FILE, "rt") as file:
        head, *lines = map(json.loads, file)

    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    schemas = {int(id): json.dumps(schema) for id, schema in head["schemas"].items()}
    messages = [
        Captured(
            line["topic"], line["partition"], line["offset"], line["ts"], decoded(line["key"]), decoded(line["value"])
        )
        for line in lines
    ]
    return schemas, messages
