"""Progress rows in wire format."""

from __future__ import annotations

import re

from server.dataflow.stream.encoding import Encode
from server.dataflow.stream.envelope import Envelope
from server.dataflow.stream.subscription import Progress

_DIGITS = re.compile(rb"[0-9]")


class ProgressRow:
    """The progress row of an envelope in one format. Two of them differ only in the digits of their timestamps.

    So the bytes around the digits are kept and used for all timestamps with the same number of digits. Each row is
    encoded if the format has no decimal digits, or if its NULL has some: COPY CSV quotes a number that equals NULL.
    """

    def __init__(self, envelope: Envelope, encode: Encode) -> None:
        self._envelope = envelope
        self._encode = encode
        self._around: list[bytes] = []
        self._width = 0  # the number of digits between the parts of `_around`

    async def encoded(self, time: int) -> bytes:
        """The row for a progress; nothing if the envelope has no progress."""
        if not self._envelope.progress:
            return b""
        digits = b"%d" % time
        if len(digits) != self._width:
            row = self._encode(await self._envelope.rows(Progress(time)))
            around = row.split(digits)
            if len(around) != 2 or _DIGITS.search(around[1]):
                return row
            self._around, self._width = around, len(digits)
        return digits.join(self._around)
