"""The time at which a transaction reads, and the history that it holds at this time."""

from __future__ import annotations

from catalog.ids import ObjectId, Timestamp
from server.session_state.session_state import SessionState
from server.session_state.transaction_errors import not_readable, serialization_failure
from server.timeline.frontiers import FullHolder, Holder, NotReadable


class ReadTimes:
    """Chooses and holds the times of a session's reads. They are in its `Transaction`: `read_time` and `holder`."""

    def __init__(self, context: SessionState) -> None:
        self._context = context

    @property
    def current(self) -> Timestamp:
        """The transaction's read timestamp, or the latest time: mz_now() of a query that reads no relation."""
        time = self._context.transaction.read_time
        return time if time is not None else self._context.coordinator.latest_time()

    def hold(self, ids: frozenset[ObjectId]) -> Timestamp:
        """Returns the transaction's read timestamp, at which `ids` are readable and held. Its first call chooses it.

        In a transaction of several statements that call holds all collections, for the statements to come. PgError if
        one of `ids` is not readable.
        """
        transaction, coordinator = self._context.transaction, self._context.coordinator
        frontiers = coordinator.frontiers
        if transaction.read_time is None:
            self._read_at(coordinator.read_time(ids), ids)
        time = transaction.read_time
        assert time is not None
        for id in ids:
            if id in frontiers.floors and not frontiers.is_readable(id, time):
                raise not_readable(self._context, NotReadable(id, frontiers.readable(id)), time)
        holder = transaction.holder
        if isinstance(holder, Holder) and not ids <= holder.collections:
            transaction.holder = frontiers.hold(holder.collections | ids, time)
            holder.release()
        return time

    def hold_latest(self, ids: frozenset[ObjectId]) -> Timestamp:
        """As `hold`, for a block's statement that writes what it reads: moves the read timestamp to the latest time.

        PgError 40001 if something that the block has read was written since then.
        """
        transaction, coordinator = self._context.transaction, self._context.coordinator
        latest = coordinator.latest_time()
        if transaction.read_time is None or transaction.read_time < latest:
            changed = coordinator.changed(transaction.unchanged, transaction.keys)
            if changed is not None:
                raise serialization_failure(self._context.state, changed)
            before = transaction.holder
            if isinstance(before, FullHolder) and not before.excluded:
                before.advance(latest)
                transaction.read_time = latest
            else:
                transaction.holder = None
                self._read_at(latest, ids)
                if before is not None:
                    before.release()
            transaction.unchanged = dict.fromkeys(transaction.unchanged, latest)
        return self.hold(ids)

    def hold_all(self) -> None:
        """Holds all collections for a block that has begun with the reads of an implicit transaction."""
        transaction = self._context.transaction
        if transaction.read_time is not None:
            before = transaction.holder
            self._read_at(transaction.read_time, frozenset())
            if before is not None:
                before.release()

    def _read_at(self, time: Timestamp, ids: frozenset[ObjectId]) -> None:
        """Sets the read timestamp and a new holder, for `ids` or for all collections."""
        transaction, frontiers = self._context.transaction, self._context.coordinator.frontiers
        transaction.read_time = time
        if transaction.explicit or transaction.is_shared:
            transaction.holder = frontiers.hold_all(time)
        else:
            readable = (id for id in ids if id in frontiers.floors and frontiers.is_readable(id, time))
            transaction.holder = frontiers.hold(readable, time)
