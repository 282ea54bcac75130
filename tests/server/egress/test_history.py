"""Histories as sinks write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from catalog.ids import Timestamp
from protocol.cdcv2.messages import DIFF, TIME
from server.egress import parts
from server.egress.downstream import Written
from server.egress.history import History


class Output:
    """Records the parts that are encoded together. It is its own encoder."""

    target: str | None = None

    def __init__(self) -> None:
        self.encoded: list[pa.Table] = []

    async def open(self, committed: int | None, target: str | None) -> Any:
        return self

    def updates(self, part: pa.Table) -> list[bytes]:
        self.encoded.append(part)
        return []

    def progress(self, _: object) -> bytes:
        return b""

    async def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        return len(list(messages)), 0

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


async def test_the_size_of_what_is_encoded_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last rows are much larger than the average."""
    monkeypatch.setattr(parts, "PART_BYTES", 2_000)
    texts = ["x"] * 1_000 + ["y" * 900] * 20 + ["z" * 3_000]
    rows = pa.table([texts, range(len(texts))], ["c0", "c1"])
    output = Output()
    history = History(output, Written())
    await history.open(None)
    await history.begin(rows, Timestamp(1))
    begun = list(output.encoded)
    changes = rows.append_column(TIME, pa.array([2] * len(texts))).append_column(DIFF, pa.array([1] * len(texts)))
    await history.write(changes, Timestamp(3))
    for encoded in (begun, output.encoded[len(begun) :]):
        assert pa.concat_tables(encoded).select(["c0", "c1"]).sort_by("c1").equals(rows)  # threads encode the parts
        assert max(part.nbytes for part in encoded if part.num_rows > 1) <= 2_100
