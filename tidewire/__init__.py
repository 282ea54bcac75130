"""The client library of Tidewire: follow a query timestamp by timestamp, and resume after a lost connection.

    import tidewire

    for batch in tidewire.subscribe(dsn, "SELECT sensor, celsius FROM readings", key=("sensor",)):
        print(batch.token, batch.rows)

Modules:

- `query` builds the SUBSCRIBE statement and defines the resume token.
- `sync` (psycopg) and `aio` (asyncpg) read the stream. Only these two do IO. Each imports its own driver, so either
  driver can be absent.
- `reader` collects rows until their timestamp is complete and returns them as one of the types in `batches`.
- `rows` converts rows to the type that the subscription asks for.
- `columns` converts changes to Arrow tables. It alone uses pyarrow, pandas and polars, which are optional.
- `together` merges several subscriptions by progress.
- `live` shows a subscription as a table in a notebook.
- `resumption` counts failed attempts and acknowledgements; `errors` decides which errors are retried.

The library does not import the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire.batches import AnyBatch, Batch, Change, KeyChange, Progress, Row, Snapshot, Update, to_arrow
from tidewire.columns import ColumnType
from tidewire.errors import BrokenPromise, KeyViolation, Retry, RowTypeMismatch, TidewireError, TokenTooOld, WrongToken
from tidewire.live import LiveTable
from tidewire.query import Query, Token
from tidewire.reader import Reader
from tidewire.together import AnyJointBatch, JointSnapshot, JointUpdate

if TYPE_CHECKING:
    from tidewire.sync import JointSubscription, Subscription, follow_together, subscribe

__all__ = [
    "AnyBatch",
    "AnyJointBatch",
    "Batch",
    "BrokenPromise",
    "Change",
    "ColumnType",
    "JointSnapshot",
    "JointSubscription",
    "JointUpdate",
    "KeyChange",
    "KeyViolation",
    "LiveTable",
    "Progress",
    "Query",
    "Reader",
    "Retry",
    "Row",
    "RowTypeMismatch",
    "Snapshot",
    "Subscription",
    "TidewireError",
    "Token",
    "TokenTooOld",
    "Update",
    "WrongToken",
    "follow_together",
    "subscribe",
    "to_arrow",
]


def __getattr__(name: str) -> Any:
    """Imports psycopg on the first use of what needs it."""
    if name in ("JointSubscription", "Subscription", "follow_together", "subscribe"):
        from tidewire import sync

        return getattr(sync, name)
    raise AttributeError(f"module 'tidewire' has no attribute {name!r}")
