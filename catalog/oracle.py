"""The giver of timestamps: write_ts = max(wall clock, last + 1), never twice, never back.

A client that saw progress at t was promised that all times before t are final. That must hold across a crash and a
clock that steps back, so time is reserved on disk ahead of its use: nothing at or beyond `reserved_until` is given
or shown before the extension is committed, and a restart begins at the reservation's end.

Pure: the clock is an argument, and writing the reservation is the caller's act, in the transaction it commits anyway.
"""

from __future__ import annotations

from catalog.objects import Timestamp

RESERVATION_MS = 10_000


class Oracle:
    """`last` is the greatest timestamp given so far; all times up to it are closed once their commit is done."""

    def __init__(self, reserved_until: int) -> None:
        self.reserved_until = reserved_until
        self.last = Timestamp(max(reserved_until - 1, 0))

    def next(self, clock_ms: int) -> Timestamp:
        """The next write timestamp. Use it only after `extension()` has been committed, where that is not None."""
        self.last = Timestamp(max(clock_ms, self.last + 1))
        return self.last

    def extension(self) -> int | None:
        """The new end of the reservation that must be on disk before `last` or `last + 1` is shown to anyone."""
        if self.last + 1 < self.reserved_until:
            return None
        return self.last + RESERVATION_MS

    def extended(self, reserved_until: int) -> None:
        """The reservation's new end is on disk."""
        self.reserved_until = reserved_until
