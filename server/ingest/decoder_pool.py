"""Decodes messages of sources: a few on the event loop, many in a thread or in a worker process.

A thread is sufficient for decoders that spend their time in Arrow and numpy, such as Avro's. Decoders that look at each
value in Python, such as that of FORMAT JSON, hold the interpreter lock all the time. In a thread they would delay
sessions and other sources, so they run in a worker process. To send messages there and the result back takes longer
than a decoder of the first kind would delay others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from protocol.pgwire.errors import PgError
from server.ingest.decoder_service import Found, MessageDecoder, Outcome, loaded, request_of
from server.workers.pool import WorkerPool

WORKERS_MAX = 4
LOOP_MESSAGES, LOOP_BYTES = 1_024, 16 * 1024  # at most these are decoded on the event loop
PROCESS_BYTES = 256 * 1024  # at least these are decoded by a worker, if that holds the lock
MEMORY_BYTES = 1 << 30  # of a worker, for one request

log = structlog.get_logger()


class DecoderPool:
    """The worker processes. Call `close` at the end. Its methods are called from one event loop."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        """With `workers_max` 0, many messages are decoded in a thread."""
        self._workers_max = workers_max
        service = "server.ingest.decoder_service:service"
        self._pool = WorkerPool(service, workers_max, idle_max=workers_max, memory_bytes=MEMORY_BYTES)

    async def decode(self, decoder: MessageDecoder[Found], data: pa.BinaryArray, *, holds_lock: bool) -> Found:
        """Returns the result of `decoder.decode(data)`.

        `holds_lock`: whether decoding holds Python's interpreter lock for nearly all of its time. Cancel safety: a
        worker that decodes is killed.
        """
        if len(data) <= LOOP_MESSAGES and data.nbytes <= LOOP_BYTES:
            return decoder.decode(data)
        if not (holds_lock and self._workers_max) or data.nbytes < PROCESS_BYTES:
            return await asyncio.to_thread(decoder.decode, data)
        request = await asyncio.to_thread(request_of, decoder, data)
        try:
            answer = await self._pool.run(request)
        except (PgError, OSError) as error:  # the worker did not start, or had not enough memory
            log.warning("messages not decoded by a worker process", messages=len(data), error=str(error))
            return await asyncio.to_thread(decoder.decode, data)
        found: Found = await asyncio.to_thread(loaded, answer)
        return replace(found, reason=_Reasons(decoder, data, found.failed))

    async def close(self) -> None:
        """Ends the workers. No call of `decode` may be running."""
        await self._pool.close()


@dataclass(frozen=True)
class _Reasons:
    """Why messages failed. A worker does not send the reasons: the messages are decoded again when one is requested."""

    decoder: MessageDecoder[Any]
    data: pa.BinaryArray
    failed: NDArray[np.bool_]

    def __call__(self, row: int) -> str:
        rows, outcome = self._again
        return outcome.reason(int(np.searchsorted(rows, row)))

    @cached_property
    def _again(self) -> tuple[NDArray[np.intp], Outcome]:
        rows = np.flatnonzero(self.failed)
        return rows, self.decoder.decode(self.data.take(pa.array(rows)))
