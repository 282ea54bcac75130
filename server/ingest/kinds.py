"""The kinds of source, by the name in `Source.system`."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files.file_source import FileSource
from server.ingest.generators.load_generator import LoadGenerator
from server.ingest.kafka.kind import KafkaKind, validate_registry
from server.ingest.postgres.kind import PostgresSource
from server.ingest.source_definition import Options
from server.ingest.source_kind import SourceKind

KINDS: Mapping[str, SourceKind] = {
    "file": FileSource(),
    "kafka": KafkaKind(),
    "postgres": PostgresSource(),
    "load generator": LoadGenerator(),
}


async def validate_connection(system: str, options: Options) -> None:
    """Contacts the external system of a connection. PgError if it cannot be reached."""
    if system == "confluent schema registry":
        await validate_registry(options)
    else:
        await kind_of(system).validate(options)


def kind_of(system: str) -> SourceKind:
    """The kind of source for an external system. PgError 0A000 if there is none."""
    if system not in KINDS:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"sources of {system} are not supported",
            hint="Use a source from KAFKA, POSTGRES, FILE or LOAD GENERATOR.",
        )
    return KINDS[system]
