"""The kinds of source, by the name that `Source.system` has."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files.file_source import FileSource
from server.ingest.generators.load_generator import LoadGenerator
from server.ingest.kafka.kind import KafkaKind
from server.ingest.postgres.kind import PostgresSource
from server.ingest.source_kind import SourceKind

KINDS: Mapping[str, SourceKind] = {
    "file": FileSource(),
    "kafka": KafkaKind(),
    "postgres": PostgresSource(),
    "load generator": LoadGenerator(),
}


def kind_of(system: str) -> SourceKind:
    """The kind of source for an external system. PgError 0A000 if there is none."""
    if system not in KINDS:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"sources of {system} are not supported")
    return KINDS[system]
