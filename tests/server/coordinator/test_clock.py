"""Jumps of the system's clock are logged."""

from __future__ import annotations

import struct
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs

from server.coordinator.clock import JUMP_MS_MIN, WatchedClock
from tests.fix_server import ServerProcess


def test_one_warning_for_each_jump() -> None:
    time = {"clock": 1_000_000, "monotonic": 0}
    clock = WatchedClock(lambda: time["clock"], lambda: time["monotonic"])

    def passes(ms: int, jump: int = 0) -> list[int]:
        """Reads the clock after this time, and returns the jumps that are logged."""
        time["monotonic"] += ms
        time["clock"] += ms + jump
        with capture_logs() as logs:
            assert clock() == time["clock"]
            assert clock() == time["clock"]
        assert all(entry["event"] == "system clock jumped" and entry["log_level"] == "warning" for entry in logs)
        return [entry["by_ms"] for entry in logs]

    assert passes(1_000) == []
    assert passes(86_400_000) == []  # a long pause is no jump
    assert passes(1_000, 3_600_000) == [3_600_000]
    assert passes(1_000) == []
    assert passes(1_000, -3_600_000) == [-3_600_000]
    assert passes(1_000, JUMP_MS_MIN) == [JUMP_MS_MIN]
    for _ in range(100):
        assert passes(1_000, JUMP_MS_MIN - 1) == []


@pytest.mark.long
def test_a_server_logs_the_cause_before_holds_exceed_their_lag(tmp_path: Path) -> None:
    offset = tmp_path / "clock"
    offset.write_bytes(bytes(8))
    env = {"FAULTS_CLOCK": str(offset), "FAULTS_SPARK": "none"}
    server = ServerProcess(tmp_path / "data", module="tests.faults.child", env=env)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a int)")
            connection.execute("CREATE HOLD h ON t WITH (MAX LAG '30 minutes')")
            with offset.open("r+b") as file:
                file.write(struct.pack("<q", 3_600_000))
            server.await_event("hold exceeded MAX LAG")
            events = server.log_path.read_text().splitlines()
            (jump,) = [number for number, event in enumerate(events) if "system clock jumped" in event]
            (advanced,) = [number for number, event in enumerate(events) if "hold exceeded MAX LAG" in event]
            assert jump < advanced
    finally:
        assert server.stop() == 0
