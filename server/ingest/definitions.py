"""What kinds of source need from the catalog: definitions with resolved secrets, and the collections to fill."""

from __future__ import annotations

from dataclasses import replace

from catalog.ids import ObjectId
from catalog.objects.connections import Connection
from catalog.objects.secrets import NamedSecret
from catalog.objects.sources import Source, SourceOutput, SourcePart, SourceTable
from catalog.source_definition import Format, ForTables
from catalog.state import CatalogState
from server.ingest.source_definition import Options, Output, SourceDefinition, Target


def connection_options(state: CatalogState, connection: Connection) -> Options:
    """The options of a connection, with the values of its secrets."""
    secrets = {}
    for name, id in connection.secrets.items():
        secret = state.items[id]
        assert isinstance(secret, NamedSecret)
        secrets[name] = secret.value
    return {**connection.options, **secrets}


def options_of(state: CatalogState, id: ObjectId) -> Options:
    """As `connection_options`, by the id of the connection."""
    connection = state.items[id]
    assert isinstance(connection, Connection)
    return connection_options(state, connection)


def definition_of(
    state: CatalogState, source: Source, *, tables: ForTables | None = None, format: Format | None = None
) -> SourceDefinition:
    """The definition of a source, with the connections and secrets of `state`.

    `tables`, `format`: those of a statement that adds an output, instead of the source's own.
    """
    formats = [f for f in (source.format, format, *_table_formats(state, source.id)) if f is not None]
    registries = frozenset[ObjectId]().union(*(f.registries for f in formats))
    return SourceDefinition(
        source.system,
        options_of(state, source.connection) if source.connection is not None else {},
        source.options,
        format or source.format,
        tables if tables is not None else source.tables,
        source.given,
        {id: options_of(state, id) for id in registries},
        source.identity,
    )


def targets_of(state: CatalogState, source: Source) -> tuple[Target, ...]:
    """The collections that a source fills, in the order of their creation."""
    own: list[SourceOutput] = [source] if source.columns else []
    return tuple(_target(source, output) for output in (*own, *state.parts_of(source.id)))


def concerned_sources(before: CatalogState, after: CatalogState) -> list[ObjectId]:
    """The sources whose definitions or collections may differ between two states, or that one of them lacks.

    New ones are in the order of their creation.
    """
    changed = (*after.changed_items(before), *(before.items.keys() - after.items.keys()))
    found: dict[ObjectId, None] = {}
    for state in (after, before):
        items = [state.items[id] for id in changed if id in state.items]
        used = [item.id for item in items if isinstance(item, Connection | NamedSecret)]
        for item in (*items, *state.dependents(*used)):
            if isinstance(item, Source):
                found[item.id] = None
            elif isinstance(item, SourcePart):
                found[item.source] = None
    return list(found)


def _target(source: Source, output: SourceOutput) -> Target:
    columns = output.columns
    if output.output_names:
        columns = tuple(replace(c, name=name) for c, name in zip(columns, output.output_names, strict=True))
    format = (output.format if isinstance(output, SourceTable) else None) or source.format
    # Not the collection's name: a rename does not change what is read.
    return Target(output.id, Output(output.reference, output.reference, columns, _original(output)), format)


def _original(output: SourceOutput) -> tuple[str, ...]:
    """The columns of the key by their names in the output."""
    if not output.output_names:
        return output.key
    original = dict(zip((column.name for column in output.columns), output.output_names, strict=True))
    return tuple(original[name] for name in output.key)


def _table_formats(state: CatalogState, source: ObjectId) -> list[Format | None]:
    return [part.format for part in state.parts_of(source) if isinstance(part, SourceTable)]
