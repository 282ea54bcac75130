"""Decoding in worker processes: the same results as in the server, except for messages with which processes fail."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from protocol.avro.decoder import Wanted
from protocol.avro.schema import parse_schema
from protocol.pgwire.errors import PgError
from server.ingest import decoder_pool
from server.ingest.decoder_pool import DecoderPool
from server.ingest.decoder_service import MessageDecoder
from server.ingest.kafka.avro_format import AvroFormat, Part, PartFormat
from server.ingest.kafka.text_formats import BytesFormat, CsvFormat, JsonFormat, TextFormat

RECORD = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [{"name": "tags", "type": {"type": "array", "items": "string"}}, {"name": "n", "type": "long"}],
    }
)
AVRO = AvroFormat(Wanted.all_of(parse_schema(RECORD)), schema=parse_schema(RECORD), framed=False)
FORMATS: dict[str, tuple[PartFormat, list[bytes | None]]] = {
    "json": (JsonFormat(("data",)), [b'{"b": 1.50, "a": [1, null]}', b"{", b"\xff", None, b'"\\u0000"', b"7"]),
    "csv": (CsvFormat((("a",), ("b",))), [b"1,2", b"1", b"1,2,3", None, b'"x, y",z', b"1,2\n3,4"]),
    "text": (TextFormat(("text",)), [b"a", b"\xff", b"\0", None, "ü".encode()]),
    "avro": (AVRO, [b"\x02\x04ab\x00\x0e", b"\x02\x04ab\x00", b"", None, b"\x00\x01", b"\x00\x02\x03"]),
    "bytes": (BytesFormat(("data",)), [b"a", None]),
}


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DecoderPool]:
    monkeypatch.setattr(decoder_pool, "PROCESS_BYTES", 0)
    found = DecoderPool(2)
    yield found
    await found.close()
    assert workers() == []


def workers() -> list[psutil.Process]:
    """The processes that decode messages for this one."""
    return [child for child in psutil.Process().children(recursive=True) if child.name() == "decoder_service"]


def many(messages: list[bytes | None]) -> pa.BinaryArray:
    """Too many for the event loop; a slice of a larger array."""
    repeated = messages * (decoder_pool.LOOP_MESSAGES // len(messages) + 2)
    return pa.array([b"first", *repeated], pa.binary())[1:]


def same(found: Part, expected: Part) -> None:
    assert found.columns == expected.columns
    assert found.failed.tolist() == expected.failed.tolist()
    for row in range(len(found.failed)):
        if found.failed[row]:
            assert found.reason(row) == expected.reason(row)


async def decoded(pool: DecoderPool, format: PartFormat, data: pa.BinaryArray) -> Part:
    decoder: MessageDecoder[Part] = await format.decoder(data)
    return await pool.decode(decoder, data, holds_lock=format.holds_lock)


@pytest.mark.parametrize("name", FORMATS)
async def test_a_worker_decodes_as_the_server_does(pool: DecoderPool, name: str) -> None:
    format, messages = FORMATS[name]
    data = many(messages)
    same(await decoded(pool, format, data), (await format.decoder(data)).decode(data))
    assert len(workers()) == (0 if name == "bytes" else 1)


async def test_few_messages_need_no_worker(pool: DecoderPool) -> None:
    format, messages = FORMATS["json"]
    data = pa.array(messages, pa.binary())
    same(await decoded(pool, format, data), (await format.decoder(data)).decode(data))
    assert workers() == []


async def test_messages_are_decoded_after_the_end_of_a_worker(pool: DecoderPool) -> None:
    format, messages = FORMATS["json"]
    data = many(messages)
    expected = (await format.decoder(data)).decode(data)
    same(await decoded(pool, format, data), expected)
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGKILL)
    with capture_logs() as logs:
        same(await decoded(pool, format, data), expected)  # in halves
    assert [entry["event"] for entry in logs] == [
        "worker process ended",
        "messages not decoded by a worker process",
    ]
    same(await decoded(pool, format, data), expected)
    assert len(workers()) == 1
    assert workers() != [worker]


async def test_a_single_message_is_decoded_after_the_end_of_a_worker(pool: DecoderPool) -> None:
    format = JsonFormat(("data",))
    data = pa.array([b"[" + b"1," * decoder_pool.LOOP_BYTES + b"1]"], pa.binary())
    await decoded(pool, format, data)
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGKILL)
    same(await decoded(pool, format, data), format.decode(data))


@pytest.mark.long
async def test_only_the_messages_with_which_workers_fail_are_not_decoded(pool: DecoderPool) -> None:
    format = _Deadly(("text",))
    data = pa.array([b"a" * decoder_pool.LOOP_BYTES, b"\xff", None, b"b", b"c"], pa.binary())
    deadly = [2, 4]
    messages = [b"deadly" if row in deadly else value for row, value in enumerate(data.to_pylist())]
    found = await decoded(pool, format, pa.array(messages, pa.binary()))
    expected = TextFormat(("text",)).decode(data)
    assert np.flatnonzero(found.failed).tolist() == sorted({*np.flatnonzero(expected.failed).tolist(), *deadly})
    for row in range(len(data)):
        if row in deadly:
            assert found.reason(row) == "message of 6 bytes could not be decoded: out of memory"
        elif expected.failed[row]:
            assert found.reason(row) == expected.reason(row)
        else:
            assert found.columns[("text",)][row] == expected.columns[("text",)][row]


@pytest.mark.long
async def test_a_source_ends_if_workers_fail_with_many_messages(
    pool: DecoderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_pool, "REFUSED_MAX", 1)
    data = pa.array([b"deadly" + bytes(decoder_pool.LOOP_BYTES)] * 2, pa.binary())
    with pytest.raises(PgError, match="more than 1 messages that were read together could not be decoded"):
        await decoded(pool, _Deadly(("text",)), data)


async def test_a_message_that_needs_more_memory_than_a_worker_has_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoder_pool, "MEMORY_BYTES", 64 << 20)
    pool = DecoderPool(1)
    try:
        format = JsonFormat(("data",))
        data = pa.array([b"[" + b"1," * 20_000_000 + b"1]", b"7"], pa.binary())
        found = await decoded(pool, format, data)
        assert found.failed.tolist() == [True, False]
        assert found.reason(0) == "message of 40000003 bytes could not be decoded: out of memory"
        assert found.columns[("data",)][1].as_py() == "7"
    finally:
        await pool.close()


async def test_the_results_of_messages_together_are_limited(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_pool, "ANSWERS_BYTES_MAX", 1_000)
    with pytest.raises(PgError, match="have more than 1000 bytes when they are decoded"):
        await decoded(pool, TextFormat(("text",)), many([b"a"]))


async def test_a_cancelled_call_ends_its_worker(pool: DecoderPool, tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    task = asyncio.create_task(pool.decode(_Endless(started), many([b"a"]), holds_lock=True))
    assert await asyncio.to_thread(started.read_text) == "decoding"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    format, messages = FORMATS["json"]
    data = many(messages)
    same(await decoded(pool, format, data), (await format.decoder(data)).decode(data))


class _Endless:
    """A decoder that writes to a pipe and never returns."""

    def __init__(self, started: Path) -> None:
        self._started = started

    def decode(self, data: pa.BinaryArray) -> Part:
        self._started.write_text("decoding")
        while True:
            signal.pause()


class _Deadly(TextFormat):
    """A format with messages that end the worker process that decodes them."""

    def _value(self, message: bytes) -> tuple[str | None, ...]:
        if message.startswith(b"deadly"):
            assert "decoder_service" in " ".join(psutil.Process().cmdline())
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._value(message)
