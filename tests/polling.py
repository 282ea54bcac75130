"""Waits for conditions that no event signals, and the time after which waiting tests fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

HANG_S = 120.0
"""How long tests wait for what takes milliseconds on an idle machine. A busy machine may need a hundred times that."""


def until(holds: Callable[[], Result], seconds: float = HANG_S) -> Result:
    """Calls `holds` until its result is true, and returns that. AssertionError after the given time."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return found
