"""The error for formats that are not supported."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState


def unsupported(message: str, *, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
