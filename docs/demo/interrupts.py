"""Ctrl-C, SIGTERM and a closed terminal as KeyboardInterrupt, which can be put off where it would do harm."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Catches SIGNALS from its making on. The exception's argument is the signal's number."""

    def __init__(self) -> None:
        self._holding = False
        self._pending: int | None = None
        for number in SIGNALS:
            signal.signal(number, self._arrive)

    def hold(self) -> None:
        """From here to the end of the program none is raised: it is cleaning up already."""
        self._holding = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """One that comes meanwhile is raised at the end."""
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
    """As a shell gives it to a program that the signal ended."""
    return 128 + int(interrupt.args[0])
