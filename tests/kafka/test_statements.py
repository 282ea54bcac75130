"""CREATE SOURCE ... FROM KAFKA with psql: connection, source, tables from it, messages, and a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix_server import ServerThread
from tests.kafka.mock_cluster import MockCluster, Record
from tests.kafka.outputs import JoinEngine
from tests.psql_session import await_rows, psql


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


def test_a_topic_is_read_by_statements(kafka: MockCluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    kafka.create_topic("prices.eu")
    kafka.produce("prices.eu", [Record(b"a", b"1"), Record(b"b", b"2"), Record(b"a", b"3")])
    server = ServerThread(tmp_path, JoinEngine(), interval_s=0.02)
    try:
        psql(
            server,
            f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}') WITH (VALIDATE)",
            "CREATE SOURCE log FROM KAFKA CONNECTION k (TOPIC 'prices.eu') FORMAT TEXT INCLUDE OFFSET",
            "CREATE SOURCE topics FROM KAFKA CONNECTION k (TOPIC 'prices.eu')",
            'CREATE TABLE prices (key, price) FROM SOURCE topics (REFERENCE "prices.eu") '
            "KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT",
        )
        await_rows(server, "log", ["1|0", "2|1", "3|2"])
        await_rows(server, "prices", ["a|3", "b|2"])
        assert psql(server, "SHOW SOURCES") == ["log|kafka", "topics|kafka"]
    finally:
        server.stop()
    kafka.produce("prices.eu", [Record(b"b", None), Record(b"c", b"4")])
    server = ServerThread(tmp_path, JoinEngine(), interval_s=0.02)
    try:
        await_rows(server, "prices", ["a|3", "c|4"])
        assert {"1|0", "2|1", "3|2"} <= set(psql(server, "TABLE log"))
    finally:
        server.stop()
