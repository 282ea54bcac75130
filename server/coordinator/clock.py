"""The system's clock, and its jumps."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

JUMP_MS_MIN = 5_000  # smaller changes are corrections, as NTP makes them

log = structlog.get_logger()


def clock_ms() -> int:
    """The time of the system's clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since a fixed moment, by a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class WatchedClock:
    """A clock in milliseconds since 1970. Logs each jump when the clock is read next, which commits do every interval.

    After a jump forward, timestamps and therefore the lag of holds are as much greater, so that MAX LAG may advance
    them. After a jump backward, timestamps advance by one for each commit until the clock has caught up.
    """

    def __init__(self, clock: Callable[[], int], monotonic: Callable[[], int] = monotonic_ms) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._last = clock(), monotonic()

    def __call__(self) -> int:
        now, elapsed = self._clock(), self._monotonic()
        before, elapsed_before = self._last
        self._last = now, elapsed
        jump_ms = (now - before) - (elapsed - elapsed_before)
        if abs(jump_ms) >= JUMP_MS_MIN:
            log.warning("system clock jumped", by_ms=jump_ms, now_ms=now)
        return now
