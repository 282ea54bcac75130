"""The order of what follows a commit of a source."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from catalog.source_state import State
from server.frontend.client import Client
from server.ingest.generators.load_generator import _Ticks
from server.ingest.ingestion import Ingestion
from server.ingest.upstream import Changes
from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

TICKS = 20


def test_a_subscriber_has_the_changes_before_the_source_arranges_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    commit, send, committed = Ingestion._commit, Client.send_written, _Ticks.committed

    async def recorded_commit(self: Ingestion, changes: Changes) -> None:
        await commit(self, changes)
        events.append("commit")

    def recorded_send(self: Client) -> None:
        events.append("send")
        send(self)

    async def recorded_committed(self: _Ticks, state: State) -> None:
        events.append("committed")
        await committed(self, state)

    monkeypatch.setattr(Ingestion, "_commit", recorded_commit)
    monkeypatch.setattr(Client, "send_written", recorded_send)
    monkeypatch.setattr(_Ticks, "committed", recorded_committed)
    server = ServerThread(tmp_path / "data", PassingEngine(), interval_s=5)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '30ms')")
            received = 0
            for row in connection.cursor().stream("SUBSCRIBE s WITH (SNAPSHOT false)"):
                received += int(row[1]) > 0
                if received == 2:
                    events.clear()  # from now on the subscriber has received everything
                if received == TICKS:
                    break
    finally:
        server.stop()
    ends = [number for number, event in enumerate(events) if event == "committed"]
    starts = [number for number, event in enumerate(events) if event == "commit"]
    pairs = [(max(start for start in starts if start < end), end) for end in ends if any(s < end for s in starts)]
    assert len(pairs) > 1  # on a busy machine many ticks share a commit
    assert sum("send" in events[start:end] for start, end in pairs) >= 0.8 * len(pairs)
