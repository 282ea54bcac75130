"""The client library of Tidewire: follow a query, timestamp by timestamp, and lose nothing when the connection does.

    import tidewire

    for batch in tidewire.subscribe(dsn, "SELECT sensor, celsius FROM readings", key=("sensor",)):
        print(batch.token, batch.rows)

The way of a row: `sync` (psycopg) or `aio` (asyncpg) read it from the stream that `query` wrote the SQL of; `reader`
keeps it until its timestamp is whole and hands that over as one of `batches`; `following` counts what failed (`errors`
says what is worth another attempt) and what was acknowledged. Only `sync` and `aio` do IO, and each imports its driver,
so that either can be missing. It needs no part of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire.batches import AnyBatch, Batch, Change, KeyChange, Progress, Row, Snapshot, Update
from tidewire.errors import BrokenPromise, KeyViolation, Retry, TidewireError, TokenTooOld, WrongToken
from tidewire.query import Query, Token
from tidewire.reader import Reader

if TYPE_CHECKING:
    from tidewire.sync import Subscription, subscribe

__all__ = [
    "AnyBatch",
    "Batch",
    "BrokenPromise",
    "Change",
    "KeyChange",
    "KeyViolation",
    "Progress",
    "Query",
    "Reader",
    "Retry",
    "Row",
    "Snapshot",
    "Subscription",
    "TidewireError",
    "Token",
    "TokenTooOld",
    "Update",
    "WrongToken",
    "subscribe",
]


def __getattr__(name: str) -> Any:
    """psycopg is imported when it is first needed."""
    if name in ("Subscription", "subscribe"):
        from tidewire import sync

        return getattr(sync, name)
    raise AttributeError(f"module 'tidewire' has no attribute {name!r}")
