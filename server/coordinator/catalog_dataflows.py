"""Starts, stops and restarts the dataflows of materialized views and indexes when the catalog changes.

Feeds and cached snapshots of the changed relations end at the same time.
"""

from __future__ import annotations

from functools import partial

from catalog.ids import ObjectId
from catalog.objects.indexes import Index
from catalog.objects.relations import Relation
from catalog.objects.views import MaterializedView
from catalog.state import CatalogState
from protocol.pgwire.enums import without_name
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.collection_feeds import CollectionFeeds
from server.coordinator.committer import Committer, altered_tables
from server.coordinator.dataflows import Dataflows
from server.coordinator.indexes import Indexes
from server.coordinator.queries import Queries
from server.coordinator.reads import altered_error
from server.coordinator.snapshot_cache import SnapshotCache
from server.coordinator.views import Views
from server.dataflow.arrangements.shared import SharedArrangements


class CatalogDataflows:
    """The dataflows that the catalog defines: one for each materialized view, and the maintenance of each index."""

    def __init__(
        self,
        committer: Committer,
        dataflows: Dataflows,
        views: Views,
        indexes: Indexes,
        snapshots: SnapshotCache,
        shared_arrangements: SharedArrangements,
        feeds: CollectionFeeds,
        queries: Queries,
    ) -> None:
        self._committer = committer
        self._dataflows = dataflows
        self._views = views
        self._indexes = indexes
        self._snapshots = snapshots
        self._shared_arrangements = shared_arrangements
        self._feeds = feeds
        self._queries = queries

    def start(self) -> None:
        """Starts the dataflows of the views and indexes that have none."""
        state = self._committer.state
        started = self._dataflows.running.keys() | self._dataflows.restarting
        for view in state.items_of(MaterializedView):
            if view.id not in started:
                self._views.start(view)
        for index in state.items_of(Index):
            if index.id not in self._indexes.arranged:
                self._indexes.start(index, state)

    def follow(self, before: CatalogState) -> None:
        """Adapts the dataflows to the committed catalog, which was `before` at the previous call."""
        self._stop_dropped(before)
        self._restart_altered(before)
        self.start()

    def _stop_dropped(self, before: CatalogState) -> None:
        """Stops the maintenance of the dropped items, and ends the feeds that read them."""
        for id in before.items.keys() - self._committer.state.items.keys():
            self._indexes.stop(id)
            self._dataflows.stop(id)
            self._snapshots.forget(id)
            name = ".".join(before.full_name(before.items[id]))
            self._end_feeds(id, PgError(SqlState.UNDEFINED_OBJECT, f"relation '{name}' was dropped"))

    def _restart_altered(self, before: CatalogState) -> None:
        """Restarts the dataflows that read relations whose columns have changed, and ends the feeds of these."""
        state = self._committer.state
        altered = [*altered_tables(before, state), *_retyped_views(before, state)]
        if not altered:
            return
        for id in altered:
            self._snapshots.forget(id)
            self._shared_arrangements.forget(id)
            self._end_feeds(id, altered_error(".".join(state.full_name(state.items[id]))))
        others = (id for id in state.changed_items(before) if _has_other_nulls(before.items.get(id), state.items[id]))
        changed = {*altered, *others}
        for view in state.items_of(MaterializedView):
            if view.id in self._dataflows.running and not changed.isdisjoint(state.collections(view.depends_on)):
                self._dataflows.restart(view.id, partial(self._start_view, view.id))
        for index in state.items_of(Index):
            if index.id in self._indexes.arranged and not changed.isdisjoint(state.collections(index.depends_on)):
                self._indexes.stop(index.id)  # `start` starts it again

    def _end_feeds(self, id: ObjectId, error: PgError) -> None:
        self._feeds.fail([id], error)
        self._queries.fail([id], error)

    def _start_view(self, id: ObjectId) -> None:
        """Starts the dataflow of a view, unless the view was dropped in the meantime."""
        item = self._committer.state.items.get(id)
        if isinstance(item, MaterializedView):
            self._views.start(item)


def _retyped_views(before: CatalogState, after: CatalogState) -> list[ObjectId]:
    """The materialized views with a column of an enumeration type whose labels have changed."""
    return [
        id
        for id in after.changed_items(before)
        if isinstance(view := after.items[id], MaterializedView)
        and isinstance(old := before.items.get(id), MaterializedView)
        and [without_name(c.type) for c in old.columns] != [without_name(c.type) for c in view.columns]
    ]


def _has_other_nulls(before: object, after: object) -> bool:
    """Whether another set of a relation's columns is nullable than before."""
    if not (isinstance(before, Relation) and isinstance(after, Relation)):
        return False
    return [column.nullable for column in before.columns] != [column.nullable for column in after.columns]
