"""Decodes messages of sources: a few on the event loop, many in a thread or in a worker process.

A thread is sufficient for decoders that spend their time in Arrow and numpy, such as Avro's. Decoders that look at each
value in Python, such as that of FORMAT JSON, hold the interpreter lock all the time. In a thread they would delay
sessions and other sources, so they run in a worker process. To send messages there and the result back takes longer
than a decoder of the first kind would delay others.

If a worker fails, the halves of its messages are decoded by workers, and so on. A single message with which two workers
fail cannot be decoded. The server never decodes messages with which a worker has failed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.decoder_service import Found, MessageDecoder, loaded, request_of
from server.ingest.upstream import UpstreamError
from server.workers.pool import WorkerPool

WORKERS_MAX = 4
LOOP_MESSAGES, LOOP_BYTES = 1_024, 16 * 1024  # at most these are decoded on the event loop
PROCESS_BYTES = 256 * 1024  # at least these are decoded by a worker, if that holds the lock
LARGE_BYTES = 1024 * 1024  # of a message of changes; the messages of sinks have half of it
MEMORY_BYTES = 1 << 30  # of a worker, for one request
ANSWERS_BYTES_MAX = 512 * 1024 * 1024  # for the messages of one call
REFUSED_MAX = 16  # messages of one call with which workers fail

log = structlog.get_logger()


class DecoderPool:
    """The worker processes. Call `close` at the end. Its methods are called from one event loop."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        """With `workers_max` 0, many messages are decoded in a thread."""
        self._workers_max = workers_max
        service = "server.ingest.decoder_service:service"
        self._pool = WorkerPool(
            service, workers_max, idle_max=workers_max, memory_bytes=MEMORY_BYTES, work="decoding", hint=None
        )

    async def decode(self, decoder: MessageDecoder[Found], data: pa.BinaryArray, *, holds_lock: bool) -> Found:
        """Returns the result of `decoder.decode(data)`.

        `holds_lock`: whether decoding holds Python's interpreter lock for nearly all of its time. A message with which
        workers fail is one that could not be decoded. PgError if there are more than REFUSED_MAX, or if the result has
        more than ANSWERS_BYTES_MAX. UpstreamError if workers cannot be started. Cancel safety: a worker that decodes is
        killed.
        """
        if len(data) <= LOOP_MESSAGES and data.nbytes <= LOOP_BYTES:
            return decoder.decode(data)
        if not (holds_lock and self._workers_max) or data.nbytes < PROCESS_BYTES:
            return await asyncio.to_thread(decoder.decode, data)
        found: list[Found] = []
        left = deque([data])
        size = refused = 0
        while left:
            part = left.popleft()
            try:
                answer = await self._answer(decoder, part)
            except PgError as error:
                if len(part) > 1:
                    half = len(part) // 2
                    left.extendleft((part[half:], part[:half]))
                    continue
                refused += 1
                if refused > REFUSED_MAX:
                    raise PgError(
                        SqlState.PROGRAM_LIMIT_EXCEEDED,
                        f"more than {REFUSED_MAX} messages that were read together could not be decoded",
                        detail=f"A worker process failed with each of them, at last with: {error.message}.",
                    ) from None
                found.append(_refused(decoder, part, error))
                continue
            size += len(answer)
            if size > ANSWERS_BYTES_MAX:
                raise PgError(
                    SqlState.PROGRAM_LIMIT_EXCEEDED,
                    f"messages of {data.nbytes} bytes have more than {ANSWERS_BYTES_MAX} bytes when they are decoded",
                )
            found.append(await asyncio.to_thread(loaded, answer))
        return found[0] if len(found) == 1 else await asyncio.to_thread(type(found[0]).joined, found)

    async def _answer(self, decoder: MessageDecoder[Found], data: pa.BinaryArray) -> bytes:
        """The answer of a worker. A second one is asked about a single message, as something else may have ended the
        first one. PgError if the worker, or both, fail.
        """
        request = await asyncio.to_thread(request_of, decoder, data)
        for is_last in (False, True) if len(data) == 1 else (True,):
            try:
                return await self._pool.run(request)
            except OSError as error:
                raise UpstreamError(f"worker process for messages could not be started: {error.strerror}") from None
            except PgError as error:
                log.warning("messages not decoded by a worker process", messages=len(data), error=error.message)
                if is_last:
                    raise
        raise AssertionError

    async def close(self) -> None:
        """Ends the workers. No call of `decode` may be running."""
        await self._pool.close()


@runtime_checkable
class ChangesInJson(Protocol):
    """A decoder of changes in JSON, which Arrow can parse if the columns are plain."""

    @property
    def is_plain(self) -> bool:
        """Whether no column is the text of a part of a message."""
        ...


def holds_lock(decoder: object, data: pa.BinaryArray) -> bool:
    """Whether a decoder of changes may hold the interpreter lock for nearly all of its time with these messages.

    Arrow parses most messages without it, but not the text of a column of type json, and not all large messages.
    """
    if not isinstance(decoder, ChangesInJson):
        return False
    return not decoder.is_plain or (pc.max(pc.binary_length(data)).as_py() or 0) > LARGE_BYTES


def _refused(decoder: MessageDecoder[Found], message: pa.BinaryArray, error: PgError) -> Found:
    """The result for a message that could not be decoded."""
    reason = f"message of {len(message[0].as_py())} bytes could not be decoded: {error.message}"
    empty = decoder.decode(pa.nulls(1, pa.binary()))
    return replace(empty, failed=np.ones(1, np.bool_), reason=lambda row: reason)
