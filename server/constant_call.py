"""A prepared query of one constant row, called by a client over and over: what a call leaves to do is worked out once.

`SELECT $1::int` at ten thousand round trips a second: of such a call only the parameters' values are new. It is
answered in one step; anything else about it, an error included, goes through the session's handlers, which give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from protocol.pgwire import messages as m
from protocol.pgwire.call import CallShape
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.errors import PgError
from protocol.pgwire.single_row import Writer, row_writer
from protocol.pgwire.types import PgType
from server.context import Context
from server.execution.prepare import Prepared, plan_key
from server.interpreter import Interpreter
from server.portals import Portal
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
    def of(cls, shape: CallShape, interpreter: Interpreter, context: Context) -> Self | None:
        """None if calls of this shape are not answered here."""
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
            m.BindComplete().serialize() + described,
        )

    def is_valid(self, interpreter: Interpreter, context: Context) -> bool:
        """Whether nothing that it was made from has changed."""
        return (
            interpreter.named.get(self.shape.bind.statement) is self.prepared
            and context.settings.revision is self.settings_revision
            and self.prepared.key == plan_key(context)
        )

    def answer(self, values: Sequence[bytes | None]) -> bytes:
        """The answer but for ReadyForQuery. NotCheap; PgError as evaluation raises it."""
        if not all(map(is_short, values)):
            raise NotCheap
        timezone = self.timezone
        given = [
            decode_parameter(type, format, value, timezone=timezone)
            for (type, format), value in zip(self.parameters, values, strict=True)
        ]
        row = self.constant.evaluate_row(Bindings(tuple(given)))
        return self.head + self.write(row) + SELECT_1


SELECT_1 = m.CommandComplete("SELECT 1").serialize()
