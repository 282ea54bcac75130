"""The output side of a client's connection, with flow control."""

from __future__ import annotations

from typing import Protocol

from server.dataflow.stream.encoding import Data


class Transport(Protocol):
    """The connection that a session writes to: a socket (`frontend.client`) or an HTTP request (`http.api_session`)."""

    def write(self, data: Data) -> None: ...
    def close(self) -> None: ...
    def close_when_read(self) -> None:
        """Closes when the client has closed its end, so that it can read the error that ends the connection."""
        ...

    async def drained(self) -> None: ...
    @property
    def is_full(self) -> bool:
        """Whether `drained` would wait."""
        ...

    def limit_input(self, waiting: int) -> None: ...
    def abort_if_stuck(self, seconds: float) -> None: ...
