"""Sources from Kafka by SQL statements, on a server with Spark."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.kafka.capture import CUSTOMERS, ORDERS, TRANSACTIONS, captured
from tests.kafka.debezium import encoded
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.records import Record
from tests.kafka.registry import Registry
from tests.kafka.test_upstream import KEY, VALUE, avro, framed
from tests.polling import HANG_S

pytestmark = pytest.mark.slow


async def until(connection: psycopg.AsyncConnection[Any], query: Any, expected: list[tuple[Any, ...]]) -> None:
    """Waits until a query has these rows."""
    async with asyncio.timeout(HANG_S):
        while True:
            if (await (await connection.execute(query)).fetchall()) == expected:
                return
            await asyncio.sleep(0.05)


async def test_an_upsert_source_is_joined_and_subscribed_to(dsn: str) -> None:
    registry = Registry()
    with MockCluster() as kafka:
        async with registry.serving(), await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            key, value = registry.register("t-key", KEY), registry.register("t-value", VALUE)
            kafka.create_topic("t", 2)
            records = [Record(framed(key, avro(n)), framed(value, b"\2\2a"), n % 2) for n in range(5)]
            kafka.produce("t", records)
            address, url = kafka.address, registry.url
            await connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{address}', SECURITY PROTOCOL PLAINTEXT)")
            await connection.execute(f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL '{url}')")
            await connection.execute(
                "CREATE SOURCE t FROM KAFKA CONNECTION k (TOPIC 't') "
                "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION c ENVELOPE UPSERT"
            )
            await connection.execute("CREATE MATERIALIZED VIEW n AS SELECT v, count(*) AS n FROM t GROUP BY v")
            await until(connection, "SELECT * FROM n", [("a", 5)])
            changes = [
                Record(framed(key, avro(0)), None, 0),
                Record(framed(key, avro(1)), framed(value, b"\2\2b"), 1),
            ]
            kafka.produce("t", changes)
            await until(connection, "SELECT * FROM n ORDER BY v", [("a", 3), ("b", 1)])
            await until(connection, "SELECT id FROM t WHERE v = 'b'", [(1,)])
            kafka.produce("t", [Record(framed(key, avro(2)), b"poison", 0)])
            errors = "error LIKE 'Envelope error: Upsert: Value error: %'"
            status = f"SELECT count(*) FROM mz_internal.mz_source_statuses WHERE name = 't' AND {errors}"
            await until(connection, status, [(1,)])
            for query in ("SELECT * FROM n", "SELECT v FROM t WHERE id = 1", "SELECT count(*) FROM t"):
                with pytest.raises(psycopg.errors.DataException, match="Value error") as caught:
                    await connection.execute(query)
                assert caught.value.diag.message_detail == 'Topic "t", partition 0, offset 4.'
            kafka.produce("t", [Record(framed(key, avro(2)), framed(value, b"\2\2c"), 0)])
            await until(connection, status, [(0,)])
            rows = await (await connection.execute("SELECT * FROM n ORDER BY v")).fetchall()
            assert rows == [("a", 2), ("b", 1), ("c", 1)]


async def test_tables_of_debezium_topics_with_whole_transactions(dsn: str) -> None:
    registry = Registry()
    schemas, messages = captured()
    registry.schemas = dict(schemas)
    with MockCluster() as kafka:
        async with registry.serving(), await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            for topic, (key, value) in zip((CUSTOMERS, ORDERS, TRANSACTIONS), ((1, 2), (3, 4), (5, 6)), strict=True):
                registry.subjects |= {f"{topic}-key": [key], f"{topic}-value": [value]}
                kafka.create_topic(topic)
                kafka.produce(topic, [Record(m.key, m.value) for m in messages if m.topic == topic])
            address, url = kafka.address, registry.url
            await connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{address}')")
            await connection.execute(f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL '{url}')")
            await connection.execute(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TRANSACTION TOPIC '{TRANSACTIONS}')")
            for name, topic, envelope in (("customers", CUSTOMERS, "DEBEZIUM"), ("orders", ORDERS, "DEBEZIUM UPSERT")):
                await connection.execute(
                    f'CREATE TABLE {name} FROM SOURCE s (REFERENCE "{topic}") '
                    f"FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION c ENVELOPE {envelope}"
                )
            await until(connection, "SELECT count(*), max(id) FROM customers", [(21, 4035)])
            await until(connection, "SELECT max(id) FROM orders WHERE customer_id = 4030", [(4032,)])


async def test_a_setting_makes_bare_debezium_an_upsert(dsn: str) -> None:
    """ENVELOPE DEBEZIUM needs `before`, unless source_envelope_debezium = upsert."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}],
    }
    fields = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    registry = Registry()
    with MockCluster() as kafka:
        async with registry.serving(), await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            key, value = registry.register("t-key", KEY), registry.register("t-value", schema)

            def change(id: int, v: str | None) -> Record:
                after = None if v is None else {"id": id, "v": v}
                data = encoded(schema, {"after": after, "op": "d" if v is None else "u"})
                return Record(framed(key, avro(id)), framed(value, data))

            kafka.create_topic("t")
            kafka.produce("t", [change(1, "a"), change(2, "b"), change(1, "c")])
            await connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")
            await connection.execute(f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}')")
            create = (
                "FROM KAFKA CONNECTION k (TOPIC 't') "
                "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION c ENVELOPE DEBEZIUM"
            )
            missing = "'before' column missing from debezium input"
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=missing):
                await connection.execute(f"CREATE SOURCE s {create}".encode())
            await connection.execute("ALTER SYSTEM SET source_envelope_debezium = upsert")
            try:
                await connection.execute(f"CREATE SOURCE s {create}".encode())
            finally:
                await connection.execute("ALTER SYSTEM RESET source_envelope_debezium")
            await until(connection, "SELECT id, v FROM s ORDER BY id", [(1, "c"), (2, "b")])
            envelope = "SELECT envelope_type FROM mz_sources WHERE name = 's'"
            assert await (await connection.execute(envelope)).fetchall() == [("debezium upsert",)]
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=missing):
                await connection.execute(f"CREATE SOURCE r {create}".encode())
            kafka.produce("t", [change(2, None), change(3, "d")])  # the source keeps its envelope
            await until(connection, "SELECT id, v FROM s ORDER BY id", [(1, "c"), (3, "d")])
