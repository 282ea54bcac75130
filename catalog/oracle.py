"""The timestamp oracle: `write_ts = max(wall clock, last + 1)`, strictly increasing.

Progress at t promises a client that all times before t are final. This must hold after a crash and after the clock
steps back. Therefore timestamps are reserved on disk before use: no timestamp >= `reserved_until` is issued or shown
before the extension of the reservation is committed, and a restart begins at the reservation's end.

No IO: the clock is an argument, and the caller writes the reservation in the transaction that it commits anyway.
"""

from __future__ import annotations

from catalog.ids import Timestamp

RESERVATION_MS = 10_000


class Oracle:
    """`last` is the greatest timestamp issued so far. Times <= `last` are closed once their commits are done."""

    def __init__(self, reserved_until: int) -> None:
        self.reserved_until = reserved_until
        self.last = Timestamp(max(reserved_until - 1, 0))

    def next(self, clock_ms: int) -> Timestamp:
        """The next write timestamp. If `extension()` is not None, commit that before using the timestamp."""
        self.last = Timestamp(max(clock_ms, self.last + 1))
        return self.last

    def extension(self) -> int | None:
        """The reservation's new end, which must be on disk before `last` or `last + 1` is shown; None if not needed."""
        if self.last + 1 < self.reserved_until:
            return None
        return self.last + RESERVATION_MS

    def extended(self, reserved_until: int) -> None:
        """Records that the reservation's new end is on disk."""
        self.reserved_until = reserved_until
