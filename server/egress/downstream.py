"""The external system of a sink, as its task uses it. Each kind of sink implements `Downstream`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from catalog.ids import Timestamp


@dataclass(slots=True)
class Written:
    """What a sink has written since the start, for `mz_sink_statistics`."""

    messages: int = 0
    updates: int = 0
    bytes: int = 0


class Downstream(Protocol):
    """Writes to an external system. One task uses it: `open`, `begin` if it is new, any number of `write`, `close`.

    PgError or OSError: it cannot be written before its definition or the external system is changed. UpstreamError: it
    cannot be written for now. The task calls `close` after each of them, and `open` after a pause.
    """

    keeps_frontier: bool
    """Whether the frontier is stored with the changes, so that each is written once. Otherwise they may repeat."""

    @property
    def target(self) -> str | None:
        """After `open`: an id of what is written, such as a topic, which another one of its name does not have.

        None: the external system has no such ids, or stores the id itself. It is committed with the frontier.
        """
        ...

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Timestamp | None:
        """Connects, and returns the frontier from which to continue; None: `begin` is next.

        `committed`: the committed frontier of the sink, which the result is not before; None: there is none.
        `target`: the committed id; None: there is none. PgError if the external system has another one now.
        """
        ...

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        """Writes the rows at `as_of`; None: they are not wanted. When it returns, they and `as_of + 1` are durable.

        The rows may be a mapped file that is larger than memory.
        """
        ...

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        """Writes changes with their times, which are all at times before `upper`. When it returns, both are durable.

        The columns are c0, c1, ..., `TIME`, `DIFF` (`protocol.cdcv2.messages`). The times ascend, and the changes of
        each are consolidated.
        """
        ...

    async def close(self) -> None:
        """Disconnects. Called after each `open`, even after one that failed."""
        ...
