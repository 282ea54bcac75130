"""Raises KeyboardInterrupt for SIGINT, SIGTERM and SIGHUP, and can postpone it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Catches SIGNALS from its creation on. The argument of KeyboardInterrupt is the number of the signal."""

    def __init__(self) -> None:
        self._holding = False
        self._pending: int | None = None
        for number in SIGNALS:
            signal.signal(number, self._arrive)

    def hold(self) -> None:
        """Suppresses all further signals. For the cleanup at the end of the program."""
        self._holding = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Postpones a signal that arrives inside the block to the end of the block."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending is not None:
            raise KeyboardInterrupt(self._pending)

    def _arrive(self, number: int, _frame: FrameType | None) -> None:
        if self._holding:
            self._pending = number
        else:
            raise KeyboardInterrupt(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code that a shell reports for a program ended by this signal: 128 + its number."""
    return 128 + int(interrupt.args[0])
