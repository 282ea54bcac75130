"""Repeated calls of a prepared query of one constant row: what does not depend on parameter values is computed once.

`SELECT $1::int` may be called ten thousand times a second, and only the parameter values differ between calls. Such a
call is answered in one step. Every other case, including errors, is handled by the session's message handlers, which
produce the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from protocol.pgwire.call import CallShape
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.errors import PgError
from protocol.pgwire.messages import backend
from protocol.pgwire.single_row import Writer, row_writer
from protocol.pgwire.types import PgType
from server.execution.prepare import Prepared, plan_key
from server.frontend.dispatch import Dispatcher
from server.frontend.portals import Portal
from server.session_state.context import Context
from server.sql.constant import Bindings, Constant, NotCheap, is_short


@dataclass(frozen=True, slots=True)
class ConstantCall:
    """Calls of one shape of one prepared statement, under one set of settings. `head`: the answer before the row."""

    shape: CallShape
    prepared: Prepared
    settings_revision: object
    constant: Constant
    parameters: Sequence[tuple[PgType, int]]
    write: Writer
    timezone: str
    head: bytes

    @classmethod
    def of(cls, shape: CallShape, interpreter: Dispatcher, context: Context) -> Self | None:
        """Returns None if calls of this shape cannot be answered in one step."""
        bind, prepared = shape.bind, interpreter.named.get(shape.bind.statement)
        plan = prepared.single_row if prepared is not None else None
        if prepared is None or plan is None or plan.constant is None or plan.uses_session:
            return None
        if len(bind.parameters) != len(prepared.parameters):
            return None
        given = bind.parameter_formats or (0,)
        try:
            formats = Portal(prepared, formats=bind.result_formats).column_formats()
        except PgError:
            return None
        described = prepared.description(formats) if shape.described else b""
        return cls(
            shape,
            prepared,
            context.settings.revision,
            plan.constant,
            list(zip(prepared.parameters, given * len(prepared.parameters) if len(given) == 1 else given, strict=True)),
            row_writer(plan.constant.types, formats, context.settings.output_style),
            context.settings.naming[2],
            backend.BindComplete().serialize() + described,
        )

    def is_valid(self, interpreter: Dispatcher, context: Context) -> bool:
        """Whether the prepared statement, the settings and the plan's key are unchanged."""
        return (
            interpreter.named.get(self.shape.bind.statement) is self.prepared
            and context.settings.revision is self.settings_revision
            and self.prepared.key == plan_key(context)
        )

    def answer(self, values: Sequence[bytes | None]) -> bytes:
        """Returns the answer without ReadyForQuery. NotCheap; PgError of the evaluation."""
        if not all(map(is_short, values)):
            raise NotCheap
        timezone = self.timezone
        given = [
            decode_parameter(type, format, value, timezone=timezone)
            for (type, format), value in zip(self.parameters, values, strict=True)
        ]
        row = self.constant.evaluate_row(Bindings(tuple(given)))
        return self.head + self.write(row) + SELECT_1


SELECT_1 = backend.CommandComplete("SELECT 1").serialize()
