"""The dataflows of subscribed queries. Equal queries share one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from catalog.ids import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.coordinator.dataflows import Dataflows
from server.coordinator.system_table_history import SystemTableHistory
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.stream.query_feed import QueryFeed
from server.timeline.frontiers import Frontiers


class Queries:
    """Starts the dataflow of a query at its first subscription, and stops it when the last subscriber has left."""

    def __init__(
        self, dataflows: Dataflows, frontiers: Frontiers, system_tables: SystemTableHistory, scratch: Path
    ) -> None:
        """`scratch`: the directory for temporary files."""
        self._dataflows = dataflows
        self._frontiers = frontiers
        self._system_tables = system_tables
        self._scratch = scratch
        self._numbers = itertools.count(1)
        self._feeds: dict[str, QueryFeed] = {}  # by the dataflow's id
        self._shared: dict[str, str] = {}  # fingerprint -> id of the dataflow that new subscriptions may join

    def __len__(self) -> int:
        return len(self._feeds)

    def dataflow(self, fingerprint: str) -> Dataflow | None:
        """Returns the dataflow of a query that new subscriptions may join."""
        id = self._shared.get(fingerprint)
        return None if id is None else self._dataflows.running[id]

    def feed(self, computation: Computation, as_of: Timestamp, *, exact: bool) -> QueryFeed:
        """Returns the feed of an equal query if that can serve `as_of`, else starts a dataflow.

        Without `exact`, a running dataflow may be at any time. NotReadable if an input cannot be read at `as_of`.
        """
        id = self._shared.get(computation.fingerprint)
        if id is not None:
            feed = self._feeds[id]
            if feed.failure is None and not (exact and feed.upper - 1 > as_of):
                return feed
        return self._start(computation, as_of, exact=exact)

    def _start(self, computation: Computation, as_of: Timestamp, *, exact: bool) -> QueryFeed:
        unfollow = self._system_tables.follow(computation.inputs & self._system_tables.ids)
        if not exact:  # the history of a system table may begin now, after the time was chosen
            as_of = Timestamp(self._frontiers.next_readable(computation.inputs, as_of))
        try:
            holder = self._frontiers.hold(computation.inputs, as_of)
        except BaseException:
            unfollow()
            raise
        id, fingerprint = f"q{next(self._numbers)}", computation.fingerprint
        feed = QueryFeed(as_of, self._scratch)
        task = self._dataflows.start(id, computation, feed, holder)
        task.add_done_callback(lambda _: unfollow())
        self._feeds[id] = feed
        shared = self._shared.get(fingerprint)
        if shared is None or self._feeds[shared].failure is not None:
            self._shared[fingerprint] = id

        def abandoned() -> None:
            self._dataflows.stop(id)
            feed.release()
            self._feeds.pop(id, None)
            if self._shared.get(fingerprint) == id:
                del self._shared[fingerprint]

        feed.abandoned = abandoned
        return feed

    def fail(self, inputs: Iterable[ObjectId], error: PgError, upper: int = 0) -> None:
        """Ends the feeds of queries that read one of `inputs` and have reached `upper`."""
        read = frozenset(inputs)
        for id, feed in list(self._feeds.items()):
            if feed.upper >= upper and read & self._dataflows.running[id].inputs:
                feed.fail(error)
                self._dataflows.cancel(id)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return sum(feed.buffered_bytes for feed in self._feeds.values())
