"""CREATE SOURCE ... FROM KAFKA with psql: connection, source, tables from it, messages, and a restart."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix_postgres import binaries
from tests.fix_server import ServerThread
from tests.kafka.mock_cluster import MockCluster, Record
from tests.kafka.outputs import JoinEngine


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


def psql(server: ServerThread, *commands: str) -> list[str]:
    """The lines that psql prints for the commands, one after the other in one session. AssertionError for an error."""
    arguments = [argument for command in commands for argument in ("-c", command)]
    done = subprocess.run(
        [binaries() / "psql", server.dsn(), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def await_rows(server: ServerThread, relation: str, expected: list[str]) -> None:
    """Follows a relation until its rows are the expected ones."""
    fetch = "FETCH ALL changes"
    with subprocess.Popen(
        [binaries() / "psql", server.dsn(), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(f"BEGIN; DECLARE changes CURSOR FOR SUBSCRIBE {relation};\n")
        rows: dict[str, int] = {}
        while sorted(rows) != sorted(expected):
            session.stdin.write(f"{fetch};\n\\echo done\n")
            session.stdin.flush()
            while (line := session.stdout.readline()) != "done\n":
                assert line, "psql ended"
                _, diff, row = line.rstrip("\n").split("|", 2)
                rows[row] = rows.get(row, 0) + int(diff)
                if not rows[row]:
                    del rows[row]
        session.stdin.write("COMMIT;\n")
        session.stdin.close()


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
