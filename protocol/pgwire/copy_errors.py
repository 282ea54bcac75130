"""CONTEXT lines of COPY errors: the relation, line and column of the error, as in PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from protocol.pgwire.errors import PgError, SqlState


@dataclass(frozen=True, slots=True)
class Place:
    """Builds CONTEXT lines as CopyFromErrorCallback() does."""

    relation: str

    def at(self, error: PgError, line: int, column: str | None = None, shown: str = "") -> PgError:
        """`error` with its CONTEXT line set; `shown` is the result of `quoted` for the line or value."""
        error.where = f"COPY {self.relation}, line {line}{f', column {column}' if column is not None else ''}{shown}"
        return error

    def column_of(self, error: PgError) -> str | None:
        """The column that the CONTEXT line of an error names; None if it names none."""
        prefix = re.escape(f"COPY {self.relation}, line ")
        found = re.match(rf'{prefix}\d+, column (.*?)(: ".*|: null input)?$', error.where or "", re.DOTALL)
        return found[1] if found is not None else None


def quoted(value: str | None) -> str:
    """A line or value as CONTEXT shows it, truncated to 100 bytes."""
    if value is None:
        return ": null input"
    data = value.encode()
    return f': "{value}"' if len(data) <= 100 else f': "{data[:100].decode(errors="ignore")}..."'


def bad_file(message: str, hint: str | None = None, detail: str | None = None) -> PgError:
    """PgError 22P04 (bad_copy_file_format)."""
    return PgError(SqlState.BAD_COPY_FILE_FORMAT, message, hint=hint, detail=detail)
