"""The pauses of a session's output."""

from __future__ import annotations

import asyncio

import pytest

from server.frontend.write_pause import WritePause


async def test_a_writer_waits_until_the_pause_ends() -> None:
    pause = WritePause()
    await pause.over()
    pause.begin()
    pause.begin()
    writer = asyncio.create_task(pause.over())
    await asyncio.sleep(0)
    assert pause.is_active
    assert not writer.done()
    pause.end()
    await writer
    assert not pause.is_active
    pause.end()


async def test_a_cancelled_writer_does_not_end_the_pause() -> None:
    pause = WritePause()
    pause.begin()
    cancelled, other = asyncio.create_task(pause.over()), asyncio.create_task(pause.over())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not other.done()
    pause.end()
    await other


@pytest.mark.parametrize("ends", [True, False])
async def test_only_a_pause_that_does_not_end_is_stuck(ends: bool) -> None:
    pause = WritePause()
    aborted = asyncio.Event()
    pause.begin()
    pause.abort_if_stuck(0.01, aborted.set)
    if ends:
        pause.end()
        pause.begin()  # another pause, which is not the one that was active
    await asyncio.sleep(0.05)
    assert aborted.is_set() is not ends
