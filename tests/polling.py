"""Waits for conditions that no event signals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def until(holds: Callable[[], Result], seconds: float = 60) -> Result:
    """Calls `holds` until its result is true, and returns that. AssertionError after the given time."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return found
