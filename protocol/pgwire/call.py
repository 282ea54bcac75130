"""Parses a call in one step: Bind, optionally Describe, Execute of all rows, and optionally Sync.

    shape = CallShape.of(data, at)        # parses the first call message by message
    found = shape.read(data, at)          # later calls: only the values are parsed

Drivers send these messages together, and the calls of one statement differ in the parameter values only. The bytes
around the values are compared instead of parsed. If they differ, the messages must be parsed one by one.

Drivers that prepare no statement send a Parse of the unnamed statement before these messages (`unnamed_parse`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from protocol.pgwire.errors import PgError
from protocol.pgwire.messages.frontend import Bind, Describe, Execute, Parse, Sync
from protocol.pgwire.messages.wire_format import HEADER, INT32

BIND, PARSE = Bind.code[0], Parse.code[0]
_DESCRIBE, _EXECUTE, _SYNC = Describe("P", "").serialize(), Execute("").serialize(), Sync().serialize()
_NULL_LENGTH = -1
NAME_BYTES_MAX = 63  # of a statement's name, in `bound_statement`
PARSE_BYTES_MAX = 4_096  # in `unnamed_parse`


def bound_statement(data: bytes, at: int) -> bytes | None:
    """The name of the statement of the Bind at `at`, with the unnamed portal. None if the message is another one."""
    start = at + HEADER.size + 1  # after the portal's name
    end = data.find(0, start, start + NAME_BYTES_MAX + 1)
    return data[start:end] if end >= 0 and data[at] == BIND and not data[start - 1] else None


def unnamed_parse(data: bytes, at: int) -> bytes | None:
    """The Parse of the unnamed statement at `at`, if a Bind of that statement follows, else None."""
    name_at = at + HEADER.size
    if name_at >= len(data) or data[at] != PARSE or data[name_at]:
        return None
    length = INT32.unpack_from(data, at + 1)[0]
    if not 4 <= length <= PARSE_BYTES_MAX:
        return None
    end = at + 1 + length
    return data[at:end] if bound_statement(data, end) == b"" else None


@dataclass(frozen=True, slots=True)
class CallShape:
    """The bytes that all calls of a statement have in common.

    `bind` is the Bind of the first call. `head` is its body before the first value. `tail` is its body after the last
    value, which has `formats_bytes` bytes, and the messages that follow. In a pipeline the Sync is often missing.
    """

    bind: Bind
    described: bool
    synced: bool
    head: bytes
    tail: bytes
    formats_bytes: int

    @classmethod
    def of(cls, data: bytes, at: int) -> Self | None:
        """The shape of the call with the unnamed portal at `at`; None if there is no complete one."""
        if len(data) - at < HEADER.size or data[at] != BIND:
            return None
        end = at + 1 + INT32.unpack_from(data, at + 1)[0]
        described = data.startswith(_DESCRIBE, end)
        executed_at = end + len(_DESCRIBE) if described else end
        if not data.startswith(_EXECUTE, executed_at):
            return None
        synced = data.startswith(_SYNC, executed_at + len(_EXECUTE))
        try:
            bind = Bind.parse(data, at + HEADER.size, end)
        except PgError:
            return None
        if bind.portal:
            return None
        formats_bytes = 2 + 2 * len(bind.result_formats)
        values_bytes = sum(4 + len(value or b"") for value in bind.parameters)
        head = data[at + HEADER.size : end - formats_bytes - values_bytes]
        executed = data[end - formats_bytes : executed_at] + _EXECUTE
        return cls(bind, described, synced, head, executed + _SYNC if synced else executed, formats_bytes)

    def read(self, data: bytes, at: int) -> tuple[list[bytes | None], int] | None:
        """The values (None is NULL) of the call at `at` and the position after it; None if it has another shape."""
        if not data.startswith(self.head, at + HEADER.size) or data[at] != BIND:
            return None
        bind_at, limit = at, len(data) - len(self.tail)
        at += HEADER.size + len(self.head)
        values: list[bytes | None] = []
        for _ in self.bind.parameters:
            if at + 4 > limit:
                return None
            (length,) = INT32.unpack_from(data, at)
            at += 4
            if length == _NULL_LENGTH:
                values.append(None)
                continue
            if not 0 <= length <= limit - at:
                return None
            values.append(data[at : at + length])
            at += length
        if not data.startswith(self.tail, at):
            return None
        if INT32.unpack_from(data, bind_at + 1)[0] != at + self.formats_bytes - bind_at - 1:
            return None
        return values, at + len(self.tail)
