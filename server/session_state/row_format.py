"""The form in which a session sends rows: that of PostgreSQL's protocol, or another one for another kind of client."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from protocol.pgwire.encode import OutputStyle, RowEncoder
from server.dataflow.stream.encoding import Encode
from server.session_state.sender import encode_table
from server.sql.grammar.statements import Statement
from server.sql.plan import Field


class RowEncoding(NamedTuple):
    """`encode` returns complete messages. `key`: equal for equal bytes of equal rows."""

    key: Hashable
    encode: Encode


class RowFormat(Protocol):
    @property
    def is_wire(self) -> bool:
        """Whether rows are DataRow messages: other code may then send rows that are encoded already."""
        ...

    def check(self, statement: Statement) -> None:
        """PgError 0A000 if the results of a statement cannot be sent in this form."""
        ...

    def encoding(self, fields: Sequence[Field], formats: Sequence[int], style: OutputStyle) -> RowEncoding:
        """`formats`: the result formats of the portal."""
        ...


class WireRows:
    """DataRow messages."""

    is_wire = True

    def check(self, statement: Statement) -> None:
        """Accepts all statements."""

    def encoding(self, fields: Sequence[Field], formats: Sequence[int], style: OutputStyle) -> RowEncoding:
        encoder = RowEncoder([field.type for field in fields], formats, style)
        return RowEncoding(("rows", tuple(formats), style), encode_table(encoder.encode))


WIRE_ROWS = WireRows()
