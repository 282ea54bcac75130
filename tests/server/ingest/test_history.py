"""What a history holds is limited, and is closed without delaying other work."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.messages import DIFF_FIELD, TIME_FIELD, Progress
from protocol.pgwire.errors import PgError, SqlState
from server.ingest import history as history_module
from server.ingest.decoder_pool import DecoderPool
from server.ingest.history import History
from server.ingest.kafka.changes_format import ChangesFormat
from server.ingest.kafka.envelopes.materialize import LOOP_HELD, MaterializeEnvelope
from server.ingest.kafka.errors import Failures
from server.ingest.kafka.messages import Messages

SCHEMA = pa.schema([("c0", pa.int64()), TIME_FIELD, DIFF_FIELD])


def decoded(statements: list[Progress], updates: int = 0) -> Decoded:
    """A message with these statements, or with so many updates at time 0."""
    numbers = np.arange(updates)
    table = pa.table([numbers, np.zeros(updates, np.int64), np.ones(updates, np.int64)], SCHEMA)
    return Decoded(table, statements, np.zeros(1, np.bool_), str)


def many_counts(lower: int, count: int) -> Progress:
    return Progress(lower, lower + count, np.arange(lower, lower + count), np.ones(count, np.int64))


@pytest.mark.parametrize("gap", [0, 1], ids=["adjacent", "with gaps"])
def test_the_memory_of_counts_is_limited(monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    monkeypatch.setattr(history_module, "HELD_BYTES_MAX", 4 << 20)
    history: History[int] = History("t", SCHEMA, {})
    with pytest.raises(PgError, match='too much of the history of "t" is incomplete') as caught:
        for number in range(100):
            history.receive(decoded([many_counts(gap + number * (10_000 + gap), 10_000)]), {}, str)
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED
    assert 10 < number < 50


async def test_a_small_message_that_closes_many_updates_is_received_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    class Observed(History[int]):
        def receive(self, *args: Any) -> list[pa.Table]:
            threads.append(threading.current_thread())
            return super().receive(*args)

    history = Observed("t", SCHEMA, {})
    envelope = MaterializeEnvelope("t", _unused(ChangesFormat), history, _unused(Failures), _unused(DecoderPool))
    number = np.zeros(1, np.int64)
    small = Messages(number.astype(np.int32), number, number, pa.array([b""]), pa.array([b"message"]))
    for updates in (10, LOOP_HELD, 10):
        await envelope.step(small, decoded([], updates))
    step = await envelope.step(small, decoded([Progress(0, 1, np.array([0]), np.array([LOOP_HELD]))]))
    assert sum(table.num_rows for table in step.tables) == LOOP_HELD
    await envelope.step(small, decoded([Progress(1, 2, np.array([1]), np.array([1]))]))
    here = threading.main_thread()
    assert [thread is here for thread in threads] == [True, True, False, False, True]


def _unused(type: type[Any]) -> Any:
    """An object that the test does not use."""
    return type.__new__(type)
