"""COPY FROM STDIN: CopyData payloads, split anywhere, to Arrow batches.

    decoder = CopyDecoder(columns, options, relation)
    for each CopyData: batches += decoder.feed(payload)
    at CopyDone: batches += decoder.finish()

Payloads are buffered until there are GATHER_BYTES; then `copy_text` or `copy_binary` decodes the complete records.
Decoding takes memory in proportion to a payload and to the longest record. It may take seconds: run it in a thread.
Errors are PgError with PostgreSQL's message, code and CONTEXT line.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from protocol.pgwire.copy_binary import Binary
from protocol.pgwire.copy_options import Columns, CopyOptions
from protocol.pgwire.copy_text import Lines
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle

GATHER_BYTES = 2 << 20  # about 30,000 rows of 70 bytes
BATCH_ROWS = 65_536
RECORD_BYTES_MAX = 64 << 20  # as a message. About four times as much memory is needed to decode a record


def record_too_long() -> PgError:
    """The error for a record of more than RECORD_BYTES_MAX."""
    detail = f"A record of COPY holds at most {RECORD_BYTES_MAX} bytes."
    return PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, "out of memory", detail=detail)


class CopyDecoder:
    """Decodes one COPY. `columns` are names and types of the column list, `relation` is the table's name in CONTEXT.

    The columns of the batches are named c0, c1, ... and have the Arrow types of their PgTypes. With the option DEFAULT,
    as many columns named d0, d1, ... follow, which are true where the default takes the place of a value; `defaulted`
    are the numbers of the columns that have a default. `checkpoint` is called every few milliseconds, and may raise.
    """

    def __init__(
        self,
        columns: Columns,
        options: CopyOptions,
        relation: str,
        *,
        timezone: str = "UTC",
        style: InputStyle = DEFAULT_INPUT,
        checkpoint: Callable[[], None] = lambda: None,
        defaulted: frozenset[int] = frozenset(),
    ) -> None:
        if not columns:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "COPY FROM needs at least one column",
                hint="Use INSERT ... DEFAULT VALUES.",
            )
        self._columns = tuple(columns)
        self._reader: Lines | Binary = (
            Binary(self._columns, relation)
            if options.is_binary
            else Lines(self._columns, options, relation, timezone, style, checkpoint, defaulted)
        )
        self._names = [f"c{index}" for index in range(len(columns))]
        if options.default is not None:
            self._names += [f"d{index}" for index in range(len(columns))]
        self._pending: list[bytes] = []
        self.gathered = 0
        """The bytes that are not decoded yet."""
        self._due = GATHER_BYTES

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        """Adds the payload of one CopyData; returns decoded batches, if any. After a PgError do not use it further."""
        self._pending.append(data)
        self.gathered += len(data)
        return self._decode(final=False) if self.gathered >= self._due else []

    def finish(self) -> list[pa.RecordBatch]:
        """The remaining batches, at CopyDone. Raises PgError as `feed` does."""
        return self._decode(final=True)

    def located(self, error: PgError, row: int, *, shows_text: bool) -> PgError:
        """The error of a returned row, by its number, with its line as CONTEXT; with its text only if it is recent."""
        return self._reader.located(error, row, shows_text=shows_text)

    def _decode(self, *, final: bool) -> list[pa.RecordBatch]:
        data = b"".join(self._pending)
        tables, used = self._reader.read(data, final=final)
        rest = data[used:]
        if len(rest) > RECORD_BYTES_MAX:
            raise record_too_long()
        # An incomplete record is scanned again only after its size has doubled: scanning stays linear.
        self._pending, self.gathered = [rest], len(rest)
        self._due = min(len(rest) + max(GATHER_BYTES, len(rest)), RECORD_BYTES_MAX + GATHER_BYTES)
        batches = (pa.record_batch(arrays, self._names) for arrays in tables if len(arrays[0]))
        return [batch.slice(start, BATCH_ROWS) for batch in batches for start in range(0, batch.num_rows, BATCH_ROWS)]
