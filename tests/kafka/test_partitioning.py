"""PARTITION BY of sinks with expressions, which Spark computes."""

from __future__ import annotations

import json
from time import sleep

import psycopg
import pytest

from tests.kafka.mock_cluster import MockCluster
from tests.kafka.sinks import PROGRESS, read_topic

pytestmark = pytest.mark.slow


def test_an_expression_chooses_the_partitions(dsn: str) -> None:
    with MockCluster() as kafka, psycopg.connect(dsn, autocommit=True) as connection:
        kafka.create_topic(PROGRESS)
        kafka.create_topic("t", 7)
        connection.execute("CREATE TABLE t (k bigint NOT NULL, v text, number bigint)")
        connection.execute(
            "INSERT INTO t SELECT n, CASE WHEN n % 5 > 0 THEN 'v' || n END, 0 FROM generate_series(1, 2000) n"
        )
        connection.execute(f"CREATE CONNECTION c TO KAFKA (BROKER '{kafka.address}')".encode())
        connection.execute(
            "CREATE SINK s FROM t INTO KAFKA CONNECTION c (TOPIC 't', PARTITION BY = length(v) * 3 - k / 2) KEY (k) "
            "FORMAT JSON ENVELOPE UPSERT"
        )
        connection.execute("UPDATE t SET v = '' WHERE k = 17")
        while len(messages := read_topic(kafka.address, "t")) < 2001:
            sleep(0.1)
        for message in messages:
            row = json.loads(message.value or b"")
            expected = 0 if row["v"] is None else len(row["v"]) * 3 - row["k"] // 2
            assert message.partition == expected % 7
        connection.execute("DROP SINK s")
