"""The materialized views: their dataflows, and what depends on a view that fails or is dropped."""

from __future__ import annotations

from catalog.ids import Timestamp
from catalog.objects.views import MaterializedView
from protocol.pgwire.errors import PgError
from server.coordinator.collection_feeds import CollectionFeeds
from server.coordinator.computations import Computations
from server.coordinator.dataflows import Dataflows
from server.coordinator.log_sink import LogSink
from server.coordinator.log_writer import LogWriter
from server.coordinator.queries import Queries
from server.coordinator.snapshot_cache import SnapshotCache
from server.timeline.frontiers import Frontiers


class Views:
    """Starts the dataflow of each materialized view. `Dataflows.stop` stops it."""

    def __init__(
        self,
        dataflows: Dataflows,
        computations: Computations,
        frontiers: Frontiers,
        writer: LogWriter,
        snapshots: SnapshotCache,
        feeds: CollectionFeeds,
        queries: Queries,
    ) -> None:
        self._dataflows = dataflows
        self._computations = computations
        self._frontiers = frontiers
        self._writer = writer
        self._snapshots = snapshots
        self._feeds = feeds
        self._queries = queries

    def start(self, view: MaterializedView) -> None:
        """Starts the dataflow where the view's log ends.

        The inputs' history from there on still exists: it was held for this view until the last server ended.
        """
        computation, frontiers = self._computations.of_item(view), self._frontiers
        sink = LogSink(view, self._writer, self._snapshots, frontiers, self._failed)
        inputs = [id for id in computation.inputs if id in frontiers.floors]
        start = Timestamp(sink.upper - (0 if sink.is_new else 1))
        holder = frontiers.hold_history(inputs, max([start, *(frontiers.floors[id] for id in inputs)]))
        self._dataflows.start(view.id, computation, sink, holder, view)

    def _failed(self, view: MaterializedView, error: PgError) -> None:
        """Ends subscriptions that depend on a failed view and have reached its `upper`."""
        upper = self._frontiers.upper(view.id)
        ids = self._dataflows.dependent_views(view.id)
        self._feeds.fail(ids, error, upper)
        self._queries.fail(ids, error, upper)
