"""Engines for what is not about Spark: one that waits for a test, and one that passes on what it is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from protocol.pgwire.errors import PgError, SqlState


class SlowEngine:
    """Statements that name `marker`, except background ones, wait at a gate while it is shut."""

    def __init__(self, engine: Any, marker: str) -> None:
        self._engine = engine
        self._marker = marker
        self._opened: asyncio.Event | None = None  # while the gate is shut
        self._loop: asyncio.AbstractEventLoop | None = None
        self.at_gate = 0
        self.waiting_at_gate = threading.Event()
        """A statement waits, or has waited since the gate was last shut."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        self._loop = asyncio.get_running_loop()
        opened = self._opened
        if self._marker in sql and not background and opened is not None:
            self.at_gate += 1
            self.waiting_at_gate.set()
            try:
                await opened.wait()
            finally:
                self.at_gate -= 1
        return await self._engine.run(sql, views, patient=patient, background=background)

    def open(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(opened.set)

    @contextmanager
    def shut_gate(self) -> Iterator[None]:
        self.waiting_at_gate.clear()
        self._opened = asyncio.Event()
        try:
            yield
        finally:
            self.open()


class PassingEngine:
    """Returns the last columns of a statement's input, as many as it selects: all of them, or the numbers of the rows.

    Fails on a first column with a 0, as a division would.
    """

    ready, unavailable, running, waiting, jvm_pid = True, None, 0, 0, None

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        (view,) = views.values()
        if pa.types.is_integer(view.schema.types[0]) and pc.any(pc.equal(view.column(0), 0)).as_py():
            raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")
        selected = sql[: sql.index(" FROM ")].count(",") + 1
        return view.select(view.column_names[-selected:])

    async def start(self) -> None:
        """It is ready."""

    async def warm_up(self) -> None:
        """Nothing is faster later."""

    async def close(self) -> None:
        """It has nothing."""
