"""HOLD objects in a running server: the time of each hold, and the rules by which it advances.

A hold is a holder of `Frontiers` with a name and a durable time. When a hold advances, its old time is released only
after the new time is held and is on disk. The history from the acknowledged time on therefore always exists.

The committer decides moves in the order of its queue. All moves of a group are part of its transaction: `Moves`
collects them and is kept or undone together with it. No clock and no disk access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from catalog.holds import Place, Status
from catalog.objects import Hold, ObjectId, Timestamp
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.timeline.frontiers import Frontiers, Holder

DOWNTIME_GRACE_MS = 600_000  # the longest uptime during which the downtime before it does not count as the holds' lag


@dataclass(slots=True)
class Advance:
    """ALTER HOLD ... ADVANCE. `to` None means as far as retention allows. `before` is the old place, once accepted."""

    hold: ObjectId
    to: int | None
    before: Place | None = None


@dataclass(frozen=True, slots=True)
class Overdue:
    """A hold that lags by more than its MAX LAG, and the time to which it must advance."""

    hold: ObjectId
    to: Timestamp


@dataclass(slots=True)
class Holds:
    """The holds. `places` are those on disk. `revision` changes with them."""

    frontiers: Frontiers
    places: dict[ObjectId, Place] = field(default_factory=dict)
    revision: int = 0
    _holders: dict[ObjectId, Holder] = field(default_factory=dict)
    _on: dict[ObjectId, set[ObjectId]] = field(default_factory=dict)
    """The holds on each object."""

    def created(self, hold: Hold, place: Place) -> None:
        """Registers a hold at a time at which the history of its objects exists."""
        self._holders[hold.id] = self.frontiers.take_over(hold.on, place.at)
        self.places[hold.id] = place
        for id in hold.on:
            self._on.setdefault(id, set()).add(hold.id)
        self.revision += 1

    def dropped(self, hold: Hold) -> None:
        """Releases what the hold kept. Its objects may already be dropped."""
        self._holders.pop(hold.id).release()
        del self.places[hold.id]
        for id in hold.on:
            self._on[id].discard(hold.id)
            if not self._on[id]:
                del self._on[id]
        self.revision += 1

    def ahead_of(self, id: ObjectId, time: int) -> ObjectId | None:
        """Returns the earliest hold on an object whose time is after `time`."""
        ahead = [hold for hold in self._on.get(id, ()) if self.places[hold].at > time]
        return min(ahead, key=lambda hold: (self.places[hold].at, hold), default=None)

    def least_allowed(self, id: ObjectId, places: Mapping[ObjectId, Place]) -> Timestamp:
        """Returns the least time of a hold on an object, or what the object retains if it has no hold."""
        retained = self.frontiers.retained(id)
        return min((places.get(hold, self.places[hold]).at for hold in self._on.get(id, ())), default=retained)

    def check(self, state: CatalogState, on: tuple[ObjectId, ...], at: int, places: Mapping[ObjectId, Place]) -> None:
        """PgError 22023 if these objects cannot be held at `at`. `places` override those on disk."""
        frontiers = self.frontiers
        check_final(frontiers, at)
        for id in on:
            if at >= frontiers.retained(id):
                continue
            least = self.least_allowed(id, places)
            if at < least:
                name = ".".join(state.full_name(state.items[id]))
                earliest = min(least, frontiers.retained(id))
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE,
                    f'hold time {at} is before the read frontier of "{name}"',
                    detail=f'The earliest time at which "{name}" can be held is {earliest}.',
                    hint="An earlier time needs another hold that stands there already.",
                )

    def overdue(self, state: CatalogState, uptime_ms: int, downtime_ms: int) -> list[Overdue]:
        """Returns the holds whose lag exceeds their MAX LAG.

        The lag of a hold is the least `upper` of its objects minus its time, in milliseconds. `downtime_ms`, the time
        without a server, does not count until the server has been up for MAX LAG or ten minutes, whichever is less.
        """
        found = []
        for id, place in self.places.items():
            hold = state.items[id]
            assert isinstance(hold, Hold)
            uncounted = downtime_ms if uptime_ms < min(hold.max_lag_ms, DOWNTIME_GRACE_MS) else 0
            to = self.frontiers.least_upper(hold.on) - uncounted - hold.max_lag_ms
            if to > place.at:
                found.append(Overdue(id, Timestamp(to)))
        return found

    def lags_ms(self, state: CatalogState) -> Iterator[tuple[Hold, Place, int]]:
        """Yields every hold, its place, and its lag: the least `upper` of its objects minus its time."""
        for id, place in self.places.items():
            hold = state.items[id]
            assert isinstance(hold, Hold)
            yield hold, place, max(self.frontiers.least_upper(hold.on) - place.at, 0)


def check_final(frontiers: Frontiers, at: int) -> None:
    """PgError 22023 if a hold's time would be after the tables' `upper`.

    The `upper` of a materialized view or index is not the bound. Between two changes it is in memory only, so after a
    restart it is less than the progress that clients have received. It reaches every time that the tables have closed,
    and after a restart the tables' `upper` is greater than all progress that was ever reported (see `catalog.oracle`).
    """
    greatest = frontiers.tables_upper
    if at > greatest:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"hold time {at} is beyond the write frontier",
            detail=f"The greatest allowed time is {greatest}.",
            hint="Use a time that SUBSCRIBE has reported as progress, or mz_now().",
        )


@dataclass(slots=True)
class Moves:
    """The moves of one commit, held but not yet on disk. Call `keep` or `undo`."""

    holds: Holds
    places: dict[ObjectId, Place] = field(default_factory=dict)
    _holders: dict[ObjectId, Holder] = field(default_factory=dict)

    def advance(self, state: CatalogState, move: Advance) -> None:
        """Advances a hold for its owner, by the rules of CREATE HOLD ... AT. PgError 22023; 42704 if it was dropped."""
        hold = state.items.get(move.hold)
        if not isinstance(hold, Hold) or move.hold not in self.holds.places:
            raise PgError(SqlState.UNDEFINED_OBJECT, "the hold was dropped")
        to = self.holds.frontiers.greatest_retained(hold.on) if move.to is None else move.to
        self.holds.check(state, hold.on, to, self.places)
        move.before = self._place(hold.id)
        self._move(hold, Place(Timestamp(to), Status.OK))

    def catch_up(self, state: CatalogState, overdue: Overdue) -> None:
        """Advances a hold that exceeds its MAX LAG, unless its owner has already advanced it that far."""
        hold = state.items.get(overdue.hold)
        if isinstance(hold, Hold) and overdue.hold in self.holds.places and overdue.to > self._place(hold.id).at:
            self._move(hold, Place(overdue.to, Status.ADVANCED))

    def _place(self, id: ObjectId) -> Place:
        return self.places.get(id) or self.holds.places[id]

    def _move(self, hold: Hold, place: Place) -> None:
        holder = self.holds.frontiers.hold(hold.on, place.at)
        if (earlier := self._holders.get(hold.id)) is not None:
            earlier.release()
        self._holders[hold.id] = holder
        self.places[hold.id] = place

    def keep(self) -> None:
        """The moves are on disk: releases the old times, and both times of holds that the same commit drops."""
        for id, holder in self._holders.items():
            old = self.holds._holders.get(id)
            if old is None:
                holder.release()
                continue
            old.release()
            self.holds._holders[id] = holder
            self.holds.places[id] = self.places[id]
        self.holds.revision += bool(self._holders)

    def undo(self) -> None:
        """The moves are not on disk: releases the new times."""
        for holder in self._holders.values():
            holder.release()
