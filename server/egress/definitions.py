"""What kinds of sink need from the catalog: definitions with resolved secrets."""

from __future__ import annotations

from catalog.objects.relations import Collection
from catalog.objects.sinks import Sink
from catalog.state import CatalogState
from server.egress.labels import text_columns
from server.egress.sink_kind import SinkDefinition
from server.ingest.definitions import options_of


def definition_of(state: CatalogState, sink: Sink) -> SinkDefinition:
    """The definition of a sink, with the connections and secrets of `state`."""
    on = state.items[sink.on]
    assert isinstance(on, Collection)
    registries = sink.format.registries if sink.format is not None else frozenset()
    return SinkDefinition(
        sink.name,
        on.name,
        text_columns(on.columns),
        options_of(state, sink.connection) if sink.connection is not None else {},
        sink.options,
        sink.format,
        sink.key,
        sink.with_snapshot,
        sink.identity,
        {id: options_of(state, id) for id in registries},
    )
