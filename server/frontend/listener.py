"""The listener: accepts connections, and closes them in order at shutdown."""

from __future__ import annotations

import asyncio
import contextlib

from server.authentication.access import Access
from server.coordinator.coordinator import Coordinator
from server.evaluation.evaluator import Evaluator
from server.frontend.client import Client, OutputQueue
from server.frontend.client_registry import ClientRegistry, terminated
from server.frontend.startup import Sessions
from server.pg_catalog.engine import CatalogEngine
from server.runtime.tls_stream import Handshakes
from server.spark import Engine


class Listener:
    """Accepts connections. `clients`: those that are connected. `sessions`: opens a session for a client."""

    def __init__(
        self,
        coordinator: Coordinator,
        engine: Engine,
        evaluator: Evaluator,
        catalog_engine: CatalogEngine,
        access: Access,
    ) -> None:
        self.clients = ClientRegistry(coordinator)
        self._access = access
        self._handshakes = Handshakes()
        signals = {
            "pg_cancel_backend": self.clients.cancel_backend,
            "pg_terminate_backend": self.clients.terminate_backend,
            "pg_reload_conf": self._reload,
        }
        self.sessions = Sessions(coordinator, engine, evaluator, catalog_engine, signals=signals)
        self._output = OutputQueue()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts accepting. Returns the address, with the actual port if `port` is 0. OSError if it is in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.new_client, host, port, backlog=2_000)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    def new_client(self) -> Client:
        """Returns the protocol object of a new connection."""
        return Client(self.clients, self.sessions, self._access, self._output, self._handshakes)

    def _reload(self, _: int) -> bool:
        self._access.reload_soon()
        return True

    @property
    def is_listening(self) -> bool:
        return self._server is not None and self._server.is_serving()

    async def close(self, grace_s: float) -> None:
        """Stops accepting, ends every session with 57P01, and aborts the connections that remain after `grace_s`."""
        if self._server is not None:
            self._server.close()
        for client in self.clients:
            client.terminate(terminated())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self.clients:
                    await self.clients.wait_until_one_leaves()
        for client in self.clients:
            client.abort()
