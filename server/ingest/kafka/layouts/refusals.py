"""The error for formats that are not supported."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState


def unsupported(message: str, *, hint: str) -> PgError:
    """The error for a format that is not supported (0A000)."""
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
