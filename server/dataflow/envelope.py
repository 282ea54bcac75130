"""How a subscription's messages look as rows: Arrow tables with the columns that SUBSCRIBE describes.

The default output (`spec.md` 1.2): mz_timestamp, [mz_progressed], mz_diff, then the relation's columns. A progress
row has NULL for all but the first two.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog import updates
from protocol.pgwire.types import BOOL, INT8, MZ_TIMESTAMP
from server.dataflow.feed import Entry
from server.dataflow.subscription import Message, Progress
from server.sql.plan import Field


class DiffEnvelope:
    """Changes as they are, each with its diff. `fields` are what a client is told of the columns."""

    def __init__(self, relation: tuple[Field, ...], *, progress: bool) -> None:
        columns = tuple(replace(f, nullable=True) for f in relation) if progress else relation
        self.progress = progress
        self.fields = (
            Field("mz_timestamp", MZ_TIMESTAMP, False),
            *((Field("mz_progressed", BOOL, False),) if progress else ()),
            Field("mz_diff", INT8, progress),
            *columns,
        )
        types = [pa.uint64(), *(f.type.arrow for f in self.fields[1:])]
        self.schema = updates.rows_schema(types)  # a number of 64 bits is all that a decimal(20) would carry

    def table(self, message: Message) -> pa.Table:
        """The message's rows, c0, c1, ..."""
        match message:
            case Progress(time):
                nulls = (pa.nulls(1, field.type) for field in list(self.schema)[2:])
                return pa.table([pa.array([time], pa.uint64()), pa.array([True]), *nulls], schema=self.schema)
            case Entry(time, changes):
                count = changes.num_rows
                progressed = [pa.array(np.zeros(count, np.bool_))] if self.progress else []
                head = [pa.array(np.full(count, time, np.uint64)), *progressed, changes[updates.DIFF]]
                return pa.table([*head, *updates.rows_of(changes).columns], schema=self.schema)
