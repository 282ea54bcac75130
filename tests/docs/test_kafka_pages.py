"""The statements of docs/cdcv2.md and of "Active-active" in docs/replication.md, executed with a mock broker."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from time import sleep, time_ns
from typing import Any

import fastavro
import psycopg
import pyarrow as pa
import pytest

from catalog.objects.views import MaterializedView
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.avro_form import schema_text
from protocol.cdcv2.json_form import JsonDecoder
from protocol.cdcv2.reader import Reader
from protocol.pgwire.types import parse_type
from server.spark.engine import SparkEngine
from tests.docs.pages import examples, executes
from tests.fix_server import ServerThread
from tests.kafka.debezium import encoded
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.records import Record
from tests.kafka.registry import RegistryThread
from tests.kafka.sinks import read_topic
from tests.kafka.test_upstream import framed
from tests.server.slow_engine import PassingEngine

TIME = "1764000000000"
PROGRESS = "com.materialize.cdc.progress"
Update = tuple[dict[str, Any], int, int]
"""The data, the time, the diff."""


def history(updates: Sequence[Update], lower: int, upper: int) -> list[Any]:
    """The messages of a part of a history: the updates, and the statement about their times."""
    times = [time for _, time, _ in updates]
    counts = [{"time": time, "count": times.count(time)} for time in sorted(set(times))]
    listed = [{"data": data, "time": time, "diff": diff} for data, time, diff in updates]
    return [listed, {"lower": [lower], "upper": [upper], "counts": counts}]


def lines_of(messages: Sequence[Any]) -> list[bytes]:
    return [json.dumps({"array" if isinstance(m, list) else PROGRESS: m}).encode() for m in messages]


def rows_of(connection: psycopg.Connection, relation: str, count: int) -> list[tuple[Any, ...]]:
    """The rows of a relation, when there are some."""
    while len(found := connection.execute(f"TABLE {relation}".encode()).fetchall()) < count:
        sleep(0.02)
    return sorted(found)


@executes("cdcv2.md", "sql")
def test_the_sources_of_cdcv2(tmp_path: Path) -> None:
    (block,) = examples("cdcv2.md", "sql")
    statements = [part for part in block.replace("/data/", f"{tmp_path}/").split(";") if part.strip()]
    assert len(statements) == 4
    columns = [EncodedColumn("id", parse_type("int8"), False), EncodedColumn("price", parse_type("numeric(10, 2)"))]
    schema = json.loads(schema_text(columns))
    messages = history([({"id": 1, "price": "1.50"}, 2, 1)], 0, 3)
    typed = history([({"id": 1, "price": Decimal("1.50")}, 2, 1)], 0, 3)
    (tmp_path / "asks-1.json").write_bytes(b"".join(line + b"\n" for line in lines_of(messages)))
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), typed)
    (tmp_path / "trades-1.avro").write_bytes(buffer.getvalue())
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=0.02)
    try:
        with MockCluster() as kafka, RegistryThread() as registry:
            for topic in ("bids", "offers"):
                kafka.create_topic(topic)
            id = registry.register("bids-value", schema)
            kafka.produce("bids", [Record(None, framed(id, encoded(schema, message))) for message in typed])
            kafka.produce("offers", [Record(None, line) for line in lines_of(messages)])
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')".encode())
                url = registry.url
                connection.execute(f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{url}')".encode())
                for statement in statements:
                    connection.execute(statement.encode())
                for relation in ("bids", "offers", "asks", "trades"):
                    assert [(n, str(price)) for n, price in rows_of(connection, relation, 1)] == [(1, "1.50")]
                for relation in ("asks", "offers", "bids", "trades"):
                    connection.execute(f"DROP SOURCE {relation}".encode())
    finally:
        server.stop()


@executes("cdcv2.md", "json")
def test_the_forms_of_cdcv2() -> None:
    schema, lines = examples("cdcv2.md", "json")
    assert json.loads(schema) == json.loads(schema_text([EncodedColumn("id", parse_type("int8"), False)]))
    columns = [EncodedColumn("id", parse_type("int8"), False), EncodedColumn("price", parse_type("numeric(10, 2)"))]
    decoder = JsonDecoder(columns)
    found = decoder.decode(pa.array(lines.encode().splitlines(), pa.binary()))
    assert not found.failed.any()
    batch = Reader(decoder.schema).receive(found.updates, found.statements)
    assert batch is not None
    assert batch.frontier == 10
    assert [tuple(row.values()) for row in batch.updates.to_pylist()] == [(1, Decimal("1.50"), 5, 1)]


@pytest.mark.slow
@executes("replication.md", "sql", section="Active-active")
def test_active_active(engine: SparkEngine, tmp_path: Path) -> None:
    define, sink = examples("replication.md", "sql", "Active-active")
    assert sink.count(TIME) == 1
    servers = [ServerThread(tmp_path / name, engine, interval_s=0.05) for name in ("first", "second")]
    connections = [closing(psycopg.connect(server.dsn(), autocommit=True)) for server in servers]
    try:
        with MockCluster() as kafka, connections[0] as first, connections[1] as second:
            kafka.create_topic("bids")
            kafka.create_topic("bids_by_auction")

            def write(updates: Sequence[Update], lower: int, upper: int) -> None:
                kafka.produce("bids", [Record(None, line) for line in lines_of(history(updates, lower, upper))])

            t0 = time_ns() // 1_000_000
            write([({"id": 1, "auction": 7}, t0, 1), ({"id": 2, "auction": 7}, t0, 1)], 0, t0 + 1)
            for connection in (first, second):
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')".encode())
                for statement in filter(str.strip, define.split(";")):
                    connection.execute(statement.encode())
            views = []
            for server in servers:
                frontiers = server.app.coordinator.frontiers
                (view,) = server.app.coordinator.state.items_of(MaterializedView)
                views.append((frontiers, view.id))
            t1 = max(time_ns() // 1_000_000, *(frontiers.since(id) + 1 for frontiers, id in views))
            write([({"id": 3, "auction": 8}, t1, 1)], t0 + 1, t1 + 1)
            while any(frontiers.upper(id) <= t1 for frontiers, id in views):
                sleep(0.02)
            for connection in (first, second):
                connection.execute(sink.replace(TIME, str(t1)).encode())
                assert rows_of(connection, "bids_by_auction", 2) == [(7, 2), (8, 1)]
            t2 = max(time_ns() // 1_000_000, t1 + 1)
            write([({"id": 1, "auction": 7}, t2, -1)], t1 + 1, t2 + 1)
            decoder = JsonDecoder([EncodedColumn(name, parse_type("int8")) for name in ("auction", "bids")])
            while True:
                values = pa.array([message.value for message in read_topic(kafka.address, "bids_by_auction")])
                found, reader = decoder.decode(values.cast(pa.binary())), Reader(decoder.schema)
                batch = reader.receive(found.updates, found.statements)
                if batch is not None and batch.frontier > t2 and reader.duplicates:  # both servers have written
                    break
            assert sorted(tuple(row.values()) for row in batch.updates.to_pylist()) == sorted(
                [(7, 2, t1, 1), (8, 1, t1, 1), (7, 2, t2, -1), (7, 1, t2, 1)]
            )
    finally:
        for server in servers:
            server.stop()
