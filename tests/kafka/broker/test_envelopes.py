"""Sources of all envelopes on `tidewire serve` with Spark: from a producer to the rows of a client."""

from __future__ import annotations

from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.load import Load
from tests.kafka.broker.reading import connected, serving, until
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka


def test_sources_of_all_envelopes(kafka: KafkaBroker, registry: Registry, tmp_path: Path) -> None:
    load = Load(kafka, registry, "all", Random(1))
    with serving(tmp_path, module="server") as server, connected(server, kafka, registry) as connection:
        load.create(connection)
        view = "SELECT u.id, u.v AS old, d.v AS new FROM all_dbz_upsert u JOIN all_dbz d ON u.id = d.id"
        connection.execute(f"CREATE MATERIALIZED VIEW both_rows AS {view}".encode())
        for _ in range(10):
            load.write()
        load.check(connection)
        until(connection, "both_rows", load.joined)
        load.write()
    with serving(tmp_path, module="server") as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        load.write()
        load.check(connection)
        until(connection, "both_rows", load.joined)
        assert sorted(connection.execute(view.encode()).fetchall(), key=repr) == sorted(load.joined, key=repr)
