"""Errors for exceptions that are not PgErrors: bugs and failures of the machine. Details are logged, not sent."""

from __future__ import annotations

import errno

import structlog

from catalog.log import Damaged
from catalog.updates import NegativeCount
from protocol.pgwire.errors import PgError, SqlState

log = structlog.get_logger()


_EVALUATION = ("21", "22")  # SQLSTATE classes that depend on values: cardinality violations, data exceptions


def evaluation_error(error: PgError) -> PgError:
    """Returns the error of a subscription whose query fails on its data. Other errors are returned unchanged."""
    if not error.sqlstate.startswith(_EVALUATION):
        return error
    return PgError(error.sqlstate, f"Evaluation error: {error.message}", detail=error.detail, hint=error.hint)


def _is_full(error: Exception) -> bool:
    """Whether SQLite, Arrow or the system reports a full device, an exceeded quota, or a limit on file size."""
    return "disk is full" in str(error) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    )


def to_pg_error(error: Exception) -> PgError:
    """Returns the error to send to the client. Logs the details that are not meant for clients."""
    if isinstance(error, PgError):
        return error
    if isinstance(error, RecursionError):
        return PgError(
            SqlState.STATEMENT_TOO_COMPLEX,
            "stack depth limit exceeded",
            hint="Write the statement with less nesting.",
        )
    if isinstance(error, NegativeCount):
        return PgError(
            SqlState.DATA_EXCEPTION,
            "the count of a row is negative" + (f' in relation "{error.relation}"' if error.relation else ""),
            detail="More copies of a row were removed than existed.",
        )
    if isinstance(error, Damaged):
        log.error("damaged data", error=str(error), detail=error.detail)
        return PgError(
            SqlState.DATA_CORRUPTED,
            str(error),
            detail=error.detail,
            hint='Stop the server and run "tidewire check" to find all damage, then restore the data directory from a '
            "backup. Other relations can be read.",
        )
    if _is_full(error):
        log.error("disk full", error=str(error))
        return PgError(SqlState.DISK_FULL, "could not write: no space left on device", hint="Free some space.")
    if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
        log.error("disk failed", error=str(error), name=getattr(error, "sqlite_errorname", ""))
        return PgError(
            SqlState.IO_ERROR,
            f"could not use the data directory: {error}",
            hint="Check the disk of the data directory.",
        )
    log.error("internal error", error=str(error), exc_info=error)
    return PgError(
        SqlState.INTERNAL_ERROR, f"internal error: {type(error).__name__}", hint="The server's log has more."
    )
