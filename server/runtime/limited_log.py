"""Log events that clients cause before their login: an attacker must not fill the disk with them."""

from __future__ import annotations

from time import monotonic
from typing import Any

import structlog

BURST = 100
PER_SECOND = 5.0

_log = structlog.get_logger()


class LimitedLog:
    """Logs at most BURST events, and then PER_SECOND. The next one says how many were omitted."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = monotonic()
        self._omitted = 0

    def info(self, event: str, **fields: Any) -> None:
        now = monotonic()
        self._left = min(float(BURST), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if self._left < 1:
            self._omitted += 1
            return
        self._left -= 1
        if self._omitted:
            fields["omitted"] = self._omitted
            self._omitted = 0
        _log.info(event, **fields)


unauthenticated = LimitedLog()
"""The log of what clients do before their login."""
