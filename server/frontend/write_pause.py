"""The pauses of a session's output, while its client does not take what was written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class WritePause:
    """A pause begins when the output is full, and ends when it can take more."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[None] | None = None

    @property
    def is_active(self) -> bool:
        return self._ended is not None

    def begin(self) -> None:
        """Begins a pause, unless there is one."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Ends the pause, if there is one."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            if not ended.done():
                ended.set_result(None)

    async def over(self) -> None:
        """Returns when no pause is active. Cancel safety: nothing is changed."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    def abort_if_stuck(self, seconds: float, abort: Callable[[], None]) -> None:
        """Calls `abort` after `seconds` if a pause is active now and has not ended by then."""
        stuck = self._ended

        def abort_if_active() -> None:
            if stuck is not None and not stuck.done():
                abort()

        asyncio.get_running_loop().call_later(seconds, abort_if_active)
