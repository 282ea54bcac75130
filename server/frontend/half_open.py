"""The connections of a port that have no session, whose number is limited."""

from __future__ import annotations

import asyncio
from typing import Protocol

from server.authentication.failures import network_of

SLOW_S = 1.0  # a connection that has no session by then may be ended to make room


class Abortable(Protocol):
    """A connection."""

    def abort(self) -> None: ...


class HalfOpen:
    """If there are too many, the port calls `end_one` for each new connection.

    This ends the oldest connection of the network that has most of them, if it is older than SLOW_S. An attacker
    therefore replaces its own connections, and not those of others.
    """

    def __init__(self) -> None:
        self._clients: dict[str, dict[Abortable, float]] = {}  # by network; the time of connecting
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def add(self, client: Abortable, address: str | None) -> None:
        self._clients.setdefault(network_of(address), {})[client] = asyncio.get_running_loop().time()
        self._number += 1

    def remove(self, client: Abortable, address: str | None) -> None:
        """Does nothing if it was removed before."""
        self._remove(client, network_of(address))

    def _remove(self, client: Abortable, network: str) -> None:
        clients = self._clients.get(network, {})
        if clients.pop(client, None) is None:
            return
        self._number -= 1
        if not clients:
            del self._clients[network]

    def end_one(self) -> bool:
        """Aborts a connection to make room for another one, and removes it. False if none is slow."""
        network, clients = max(self._clients.items(), key=lambda item: len(item[1]), default=("", {}))
        oldest = next(iter(clients), None)
        if oldest is None or asyncio.get_running_loop().time() - clients[oldest] <= SLOW_S:
            return False
        self._remove(oldest, network)
        oldest.abort()
        return True
