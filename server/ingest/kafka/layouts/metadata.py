"""The columns of INCLUDE, which have the metadata of messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog.objects.columns import Column
from catalog.source_definition import Format, Include
from protocol.pgwire.datetime_input import DATE_MIN
from protocol.pgwire.datetime_output import INFINITY, MINUS_INFINITY
from protocol.pgwire.json_values import printed_jsonb
from server.ingest.kafka.messages import Messages

_TIMESTAMP_MIN, _TIMESTAMP_END = DATE_MIN * 86_400_000, INFINITY // 1_000  # milliseconds
_METADATA = {"partition": "int4", "offset": "int8", "timestamp": "timestamp", "headers": "jsonb"}


def included_columns(format: Format, columns: list[Column]) -> tuple[tuple[int, Include], ...]:
    """Appends the columns of INCLUDE to `columns`."""
    found = []
    for include in format.include:
        if include.what == "key":
            continue
        if include.what == "header":
            type, name = ("bytea" if include.is_bytes else "text"), include.name or include.header or "header"
        else:
            type, name = _METADATA[include.what], include.name or include.what
        found.append((len(columns), include))
        columns.append(Column(name, type, include.what == "header"))
    return tuple(found)


def metadata_column(messages: Messages, include: Include) -> pa.Array:
    """Returns the column of an INCLUDE."""
    match include.what:
        case "partition":
            return pa.array(messages.partitions)
        case "offset":
            return pa.array(messages.offsets)
        case "timestamp":
            return _timestamps(messages.timestamps)
    assert messages.headers is not None
    if include.what == "headers":
        return pa.array(
            [
                printed_jsonb([{"key": k, "value": None if v is None else "\\x" + v.hex()} for k, v in headers])
                for headers in messages.headers
            ],
            pa.string(),
        )
    last = [dict(headers).get(include.header or "") for headers in messages.headers]
    if include.is_bytes:
        return pa.array(last, pa.binary())
    return pa.array(
        [None if v is None else v.decode(errors="replace").replace("\0", "\ufffd") for v in last], pa.string()
    )


def _timestamps(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Producers may write any number. Those that no timestamp can have are -infinity and infinity."""
    after, before = milliseconds >= _TIMESTAMP_END, milliseconds < _TIMESTAMP_MIN
    within = np.where(after | before, 0, milliseconds) * 1_000
    return pa.array(np.select([after, before], [INFINITY, MINUS_INFINITY], within)).view(pa.timestamp("us"))


def reads_headers(format: Format) -> bool:
    """Whether the headers of messages are needed."""
    return any(include.what in ("header", "headers") for include in format.include)
