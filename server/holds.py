"""HOLD objects while the server runs: where each stands, and the rules by which it moves.

A hold is a holder of `Frontiers` with a name and a place on disk. The old time is let go only after the new one is
held and its move is on disk: whatever happens between, the history from the acknowledged place on is there.

Moves are decided by the committer, one after another in the order of its queue, and all moves of a group share its
transaction: `Moves` gathers a group's, and is kept or undone with it. Pure but for the frontiers: no clock, no disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from catalog.holds import Place, Status
from catalog.objects import CatalogState, Hold, ObjectId, Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.frontiers import Frontiers, Holder

DOWNTIME_GRACE_MS = 600_000  # how long a server must be up, at most, before its downtime counts as the holds' lag


@dataclass(slots=True)
class Advance:
    """ALTER HOLD ... ADVANCE: `to` None is as far as retention goes. `before` is where it stood, once accepted."""

    hold: ObjectId
    to: int | None
    before: Place | None = None


@dataclass(frozen=True, slots=True)
class Overdue:
    """A hold that lags by more than its MAX LAG, and the time to which it has to go."""

    hold: ObjectId
    to: Timestamp


@dataclass(slots=True)
class Holds:
    """`places` are as on disk; `revision` changes with them."""

    frontiers: Frontiers
    places: dict[ObjectId, Place] = field(default_factory=dict)
    revision: int = 0
    _holders: dict[ObjectId, Holder] = field(default_factory=dict)
    _on: dict[ObjectId, set[ObjectId]] = field(default_factory=dict)
    """The holds on each object."""

    def created(self, hold: Hold, place: Place) -> None:
        """A hold exists, at a time at which its objects' history is there."""
        self._holders[hold.id] = self.frontiers.take_over(hold.on, place.at)
        self.places[hold.id] = place
        for id in hold.on:
            self._on.setdefault(id, set()).add(hold.id)
        self.revision += 1

    def dropped(self, hold: Hold) -> None:
        """What it held, nobody else does: its objects may be gone already."""
        self._holders.pop(hold.id).release()
        del self.places[hold.id]
        for id in hold.on:
            self._on[id].discard(hold.id)
            if not self._on[id]:
                del self._on[id]
        self.revision += 1

    def ahead_of(self, id: ObjectId, time: int) -> ObjectId | None:
        """The hold on an object that stands ahead of `time`, the nearest if there are several."""
        ahead = [hold for hold in self._on.get(id, ()) if self.places[hold].at > time]
        return min(ahead, key=lambda hold: (self.places[hold].at, hold), default=None)

    def least_allowed(self, id: ObjectId, places: Mapping[ObjectId, Place]) -> Timestamp:
        """The least time at which an object may be held: what it retains, or another hold's time on it."""
        retained = self.frontiers.retained(id)
        return min((places.get(hold, self.places[hold]).at for hold in self._on.get(id, ())), default=retained)

    def check(self, state: CatalogState, on: tuple[ObjectId, ...], at: int, places: Mapping[ObjectId, Place]) -> None:
        """PgError 22023 if the rules do not allow a hold on these objects at `at`; `places` override those on disk."""
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
        """The holds whose lag is above their MAX LAG.

        Lag is the least write frontier of a hold's objects less its time. `downtime_ms`, for which there was no
        server, does not count before the server has been up for MAX LAG, or ten minutes.
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
        """Every hold, its place, and how far it is behind the least write frontier of its objects."""
        for id, place in self.places.items():
            hold = state.items[id]
            assert isinstance(hold, Hold)
            yield hold, place, max(self.frontiers.least_upper(hold.on) - place.at, 0)


def check_final(frontiers: Frontiers, at: int) -> None:
    """PgError 22023 if a hold cannot be at `at` because that time is beyond the tables' write frontier.

    The write frontier of a materialized view or index is not the bound. Between two changes it is in memory only, so
    after a restart it is less than the progress that clients have seen. It reaches every time that the tables have
    closed, and after a restart the tables' write frontier is beyond every progress that was ever reported (see
    `catalog.oracle`).
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
    """The moves of one commit: decided, held, and not yet on disk. `keep` them or `undo` them."""

    holds: Holds
    places: dict[ObjectId, Place] = field(default_factory=dict)
    _holders: dict[ObjectId, Holder] = field(default_factory=dict)

    def advance(self, state: CatalogState, move: Advance) -> None:
        """An owner's move, as the rules of CREATE HOLD ... AT allow it. PgError 22023; 42704 if the hold is gone."""
        hold = state.items.get(move.hold)
        if not isinstance(hold, Hold) or move.hold not in self.holds.places:
            raise PgError(SqlState.UNDEFINED_OBJECT, "the hold was dropped")
        to = self.holds.frontiers.greatest_retained(hold.on) if move.to is None else move.to
        self.holds.check(state, hold.on, to, self.places)
        move.before = self._place(hold.id)
        self._move(hold, Place(Timestamp(to), Status.OK))

    def catch_up(self, state: CatalogState, overdue: Overdue) -> None:
        """What MAX LAG asks for, unless the owner has come first."""
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
        """They are on disk: the old times are let go. Of a hold that the same commit drops, the new one too."""
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
        """They are not on disk, and never will be."""
        for holder in self._holders.values():
            holder.release()
