"""The statements of docs/kafka-source.md, executed in PostgreSQL and in Tidewire, with Debezium between them."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.docs.pages import examples, executes
from tests.fix_postgres import PostgresServer
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.debezium import Debezium
from tests.kafka.broker.reading import serving, until
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka

TABLES = ("bank.public.accounts", "bank.public.transfers")
TRANSACTIONS = "bank.transaction"


@executes("kafka-source.md", "sql")
def test_the_page_shows_statements_that_work(kafka: KafkaBroker, registry: Registry, tmp_path: Path) -> None:
    found = [block.split("\n", 1) for block in examples("kafka-source.md", "sql")]
    assert [place.removeprefix("-- in ") for place, _ in found] == [
        "PostgreSQL",
        "PostgreSQL",
        "Tidewire",
        "PostgreSQL",
    ]
    urls = {"localhost:9092": kafka.address, "http://localhost:8081": registry.url}
    blocks = [re.sub("|".join(urls), lambda url: urls[url[0]], block) for _, block in found]
    for topic in (*TABLES, TRANSACTIONS):
        kafka.create_topic(topic)
    postgres = PostgresServer("wal_level=logical")
    try:
        with (
            serving(tmp_path / "server") as server,
            psycopg.connect(postgres.dsn, autocommit=True) as upstream,
            psycopg.connect(server.dsn, autocommit=True) as tidewire,
        ):
            upstream.execute(blocks[0].encode())
            debezium = Debezium(tmp_path, kafka, registry, postgres.port, "bank")
            try:
                while any(kafka.end(topic) < 2 for topic in TABLES):
                    pass
                upstream.execute(blocks[1].encode())
                while not kafka.end(TRANSACTIONS):
                    pass
                tidewire.execute(blocks[2].encode())
                until(tidewire, "accounts", [(1, "Ada", 90), (2, "Blaise", 50)])
                upstream.execute(blocks[3].encode())
                until(tidewire, "accounts", [(1, "Ada", 90), (2, "Blaise", 60)])
                until(tidewire, "transfers", [(1, 1, 100), (2, 2, 50), (3, 2, 10)])
            finally:
                debezium.kill()
    finally:
        postgres.stop()
