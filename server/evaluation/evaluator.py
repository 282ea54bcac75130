"""Evaluates constants: cheap ones on the event loop, others in a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from typing import Any

import pyarrow as pa

from server.sql.constant import Bindings, Constant, NotCheap
from server.sql.functions.worker import scalars
from server.sql.relations import Relation
from server.workers.messages import REQUEST, framed
from server.workers.pool import WorkerPool

WORKERS_MAX = 4


class Evaluator:
    """Evaluates constants. Call `close` at the end. Its methods are called from one event loop."""

    def __init__(self) -> None:
        self._pool = WorkerPool("server.evaluation.constants:service", WORKERS_MAX, takes_turns=True)
        self.prepare, self.close = self._pool.prepare, self._pool.close

    async def evaluate(self, constant: Constant, bindings: Bindings) -> pa.Table:
        """Returns all rows. The columns are c0, c1, ...

        PgError of the expression; 53200 beyond `pool.MEMORY_BYTES`, otherwise as `WorkerPool.run`.
        """
        if not constant.types:
            return pa.table({"": pa.nulls(len(constant.rows))}).select([])  # rows without columns
        if constant.is_literal:
            return await asyncio.to_thread(constant.literal_rows)
        with contextlib.suppress(NotCheap):
            return pa.Table.from_batches([constant.evaluate(bindings)])

        async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
            function = {
                "signal": bindings.signal,
                "fact": bindings.fact,
                "privilege_function": bindings.privilege_function,
                "sequence": bindings.sequence,
            }[name]
            return None if function is None else function(*arguments)

        request = await asyncio.to_thread(_request, constant.relation, bindings)
        return await asyncio.to_thread(_rows, await self._pool.run(request, answer))

    async def value(self, constant: Constant, bindings: Bindings) -> object:
        """Returns the value of a constant of one row and column as a Python scalar. Errors as `evaluate`."""
        with contextlib.suppress(NotCheap):
            (value,) = constant.evaluate_row(bindings)
            return value
        column = (await self.evaluate(constant, bindings)).column(0).combine_chunks()
        (type,) = constant.types
        return column[0].as_py() if type.name == "interval" else scalars(type, column)[0]


def _request(relation: Relation, bindings: Bindings) -> bytes:
    settings = {name.lower(): value for name, value in bindings.settings.items()}
    sent = bindings._replace(
        settings=settings, signal=None, fact=None, privilege_function=None, sequence=None, volatile=None
    )
    return framed(REQUEST, pickle.dumps((relation, sent)))


def _rows(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
