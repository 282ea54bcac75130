"""Runs the statements of a dataflow's steps over no rows, so that Spark has their plans before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pyarrow as pa
import structlog

from protocol.pgwire.errors import PgError
from server.dataflow.operators.operator import Operator, named_columns
from server.dataflow.plan.nodes import Statement
from server.spark import Engine

log = structlog.get_logger()


class Preparation:
    """Prepares the statements of operators in the background, while the engine is idle. Has at most one task."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None

    def start(self, operators: Iterable[Operator]) -> None:
        """Starts a task that prepares these operators instead of the former ones."""
        self.stop()
        self._task = asyncio.create_task(self._prepare([one for operator in operators for one in operator.statements]))

    def stop(self) -> None:
        """Cancels the task, if there is one. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _prepare(self, statements: list[tuple[Statement, Sequence[pa.Schema]]]) -> None:
        for statement, schemas in statements:
            views = {f"d{number}": named_columns(schema.empty_table()) for number, schema in enumerate(schemas)}
            late = statement.late_for(views)
            text, read = (statement.text(views), views) if late is None else (late.text, late.read(views))
            try:
                await self._engine.run(text, read, patient=True, background=True)
            except PgError as error:  # a step that has rows reports it to the client
                log.debug("statement not prepared", error=error.message)
