"""Where in COPY's data an error is, as PostgreSQL's CONTEXT lines tell it."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.pgwire.errors import PgError, SqlState


@dataclass(frozen=True, slots=True)
class Place:
    """CopyFromErrorCallback(): what the CONTEXT line says."""

    relation: str

    def at(self, error: PgError, line: int, column: str | None = None, shown: str = "") -> PgError:
        """`error` with its place; `shown` is what `quoted` made of the line or the value."""
        error.where = f"COPY {self.relation}, line {line}{f', column {column}' if column is not None else ''}{shown}"
        return error


def quoted(value: str | None) -> str:
    """A line or a value as CONTEXT shows it, at most 100 bytes."""
    if value is None:
        return ": null input"
    data = value.encode()
    return f': "{value}"' if len(data) <= 100 else f': "{data[:100].decode(errors="ignore")}..."'


def bad_file(message: str, hint: str | None = None) -> PgError:
    """22P04."""
    return PgError(SqlState.BAD_COPY_FILE_FORMAT, message, hint=hint)
