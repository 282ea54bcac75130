"""The connections without a session, whose number is limited."""

from __future__ import annotations

import asyncio
from typing import Protocol

HALF_OPEN_MAX = 500
SLOW_S = 1.0  # a client that has not authenticated by then may be disconnected to make room


class Abortable(Protocol):
    """A connection."""

    def abort(self) -> None: ...


class HalfOpen:
    """If there are more than HALF_OPEN_MAX, each new connection ends an older one that has taken longer than SLOW_S.

    It ends the oldest connection of the address that has most of them. An attacker therefore replaces its own
    connections, and not those of others.
    """

    def __init__(self) -> None:
        self._clients: dict[str | None, dict[Abortable, float]] = {}  # by address; the time of connecting
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def add(self, client: Abortable, address: str | None) -> None:
        now = asyncio.get_running_loop().time()
        self._clients.setdefault(address, {})[client] = now
        self._number += 1
        if self._number <= HALF_OPEN_MAX:
            return
        most = max(self._clients.values(), key=len)
        oldest, since = next(iter(most.items()))
        if now - since > SLOW_S:
            owner = next(address for address, clients in self._clients.items() if clients is most)
            self.remove(oldest, owner)
            oldest.abort()

    def remove(self, client: Abortable, address: str | None) -> None:
        """Does nothing if it was removed before."""
        clients = self._clients.get(address, {})
        if clients.pop(client, None) is None:
            return
        self._number -= 1
        if not clients:
            del self._clients[address]
