"""HOLD objects in a running server: the time of each hold, and the rules by which it advances.

A hold is a holder of `Frontiers` with a name and a durable time. For a hold h on objects O(h) at the time at(h):

    since(o) <= at(h)  for each o in O(h)                           all history from at(h) on is readable

A hold may be created at, or advanced by its owner to, a time t if

    t <= tables_upper                                               no time is held that may never be closed
    min(retained(o), at(h') for holds h' on o) <= t                 for each o in O(h): the history at t exists

    lag(h) = min(upper(o) for o in O(h)) - at(h)
    lag(h) > MAX LAG  =>  at(h) becomes min(upper(o)) - MAX LAG     once per interval

When a hold advances, its old time is released only after the new time is held and is on disk. The history from the
acknowledged time on therefore always exists, even after a crash at any moment.

The committer decides moves in the order of its queue. All moves of a group are part of its transaction: `Moves`
collects them and is committed or rolled back together with it. No clock and no disk access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from catalog.holds import HoldPosition, Status
from catalog.ids import ObjectId, Timestamp
from catalog.objects.holds import Hold
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.timeline.frontiers import Frontiers, Holder

DOWNTIME_GRACE_MS = 600_000  # the longest uptime during which the downtime before it does not count as the holds' lag


@dataclass(frozen=True, slots=True)
class Advance:
    """ALTER HOLD ... ADVANCE. `to` None: as far as retention allows."""

    hold: ObjectId
    to: int | None


@dataclass(frozen=True, slots=True)
class Overdue:
    """A hold that lags by more than its MAX LAG, and the time to which it must advance."""

    hold: ObjectId
    to: Timestamp


@dataclass(slots=True)
class Holds:
    """The holds. `positions` are those on disk. `revision` changes with them."""

    frontiers: Frontiers
    positions: dict[ObjectId, HoldPosition] = field(default_factory=dict)
    revision: int = 0
    _holders: dict[ObjectId, Holder] = field(default_factory=dict)
    _on: dict[ObjectId, set[ObjectId]] = field(default_factory=dict)
    """The holds on each object."""

    def created(self, hold: Hold, position: HoldPosition) -> None:
        """Registers a hold at a time at which the history of its objects exists."""
        self._holders[hold.id] = self.frontiers.hold_history(hold.on, position.at)
        self.positions[hold.id] = position
        for id in hold.on:
            self._on.setdefault(id, set()).add(hold.id)
        self.revision += 1

    def moved(self, id: ObjectId, position: HoldPosition, holder: Holder) -> None:
        """Called when a new position, which `holder` holds, is on disk. Releases the old one, or both after a drop."""
        old = self._holders.get(id)
        if old is None:
            holder.release()
            return
        old.release()
        self._holders[id] = holder
        self.positions[id] = position
        self.revision += 1

    def dropped(self, hold: Hold) -> None:
        """Releases what the hold kept. Its objects may already be dropped."""
        self._holders.pop(hold.id).release()
        del self.positions[hold.id]
        for id in hold.on:
            self._on[id].discard(hold.id)
            if not self._on[id]:
                del self._on[id]
        self.revision += 1

    def ahead_of(self, id: ObjectId, time: int) -> ObjectId | None:
        """Returns the earliest hold on an object whose time is after `time`."""
        ahead = [hold for hold in self._on.get(id, ()) if self.positions[hold].at > time]
        return min(ahead, key=lambda hold: (self.positions[hold].at, hold), default=None)

    def least_allowed(self, id: ObjectId, positions: Mapping[ObjectId, HoldPosition]) -> Timestamp:
        """Returns the least time of a hold on an object, or what the object retains if it has no hold."""
        retained = self.frontiers.retained(id)
        return min((positions.get(hold, self.positions[hold]).at for hold in self._on.get(id, ())), default=retained)

    def check(
        self, state: CatalogState, on: tuple[ObjectId, ...], at: int, positions: Mapping[ObjectId, HoldPosition]
    ) -> None:
        """PgError 22023 if these objects cannot be held at `at`. `positions` override those on disk."""
        frontiers = self.frontiers
        check_final(frontiers, at)
        for id in on:
            if at >= frontiers.retained(id):
                continue
            least = self.least_allowed(id, positions)
            if at < least:
                name = ".".join(state.full_name(state.items[id]))
                earliest = min(least, frontiers.retained(id))
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE,
                    f'hold time {at} is before the read frontier of "{name}"',
                    detail=f'The earliest time at which "{name}" can be held is {earliest}.',
                    hint="An earlier time requires another hold on the object at that time or earlier.",
                )

    def overdue(self, state: CatalogState, uptime_ms: int, downtime_ms: int) -> list[Overdue]:
        """Returns the holds whose lag exceeds their MAX LAG.

        The lag of a hold is the least `upper` of its objects minus its time, in milliseconds. `downtime_ms`, the time
        without a server, does not count until the server has been up for MAX LAG or ten minutes, whichever is less.
        """
        found = []
        for id, position in self.positions.items():
            hold = state.items[id]
            assert isinstance(hold, Hold)
            uncounted = downtime_ms if uptime_ms < min(hold.max_lag_ms, DOWNTIME_GRACE_MS) else 0
            to = self.frontiers.least_upper(hold.on) - uncounted - hold.max_lag_ms
            if to > position.at:
                found.append(Overdue(id, Timestamp(to)))
        return found

    def lags_ms(self, state: CatalogState) -> Iterator[tuple[Hold, HoldPosition, int]]:
        """Yields every hold, its position, and its lag: the least `upper` of its objects minus its time."""
        for id, position in self.positions.items():
            hold = state.items[id]
            assert isinstance(hold, Hold)
            yield hold, position, max(self.frontiers.least_upper(hold.on) - position.at, 0)


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


class Moves:
    """The moves of one commit, held but not yet on disk. Call `commit` or `roll_back`."""

    def __init__(self, holds: Holds) -> None:
        self.positions: dict[ObjectId, HoldPosition] = {}
        """The new positions."""
        self._holds = holds
        self._holders: dict[ObjectId, Holder] = {}

    def advance(self, state: CatalogState, move: Advance) -> HoldPosition:
        """Advances a hold for its owner, by the rules of CREATE HOLD ... AT. Returns the old position.

        PgError 22023; 42704 if the hold was dropped.
        """
        holds, hold = self._holds, state.items.get(move.hold)
        if not isinstance(hold, Hold) or move.hold not in holds.positions:
            raise PgError(SqlState.UNDEFINED_OBJECT, "the hold was dropped")
        to = holds.frontiers.greatest_retained(hold.on) if move.to is None else move.to
        holds.check(state, hold.on, to, self.positions)
        old = self._position(hold.id)
        self._move(hold, HoldPosition(Timestamp(to), Status.OK))
        return old

    def advance_overdue(self, state: CatalogState, move: Overdue) -> None:
        """Advances a hold that exceeds its MAX LAG, unless its owner has already advanced it that far."""
        hold = state.items.get(move.hold)
        if isinstance(hold, Hold) and move.hold in self._holds.positions and move.to > self._position(hold.id).at:
            self._move(hold, HoldPosition(move.to, Status.ADVANCED))

    def _position(self, id: ObjectId) -> HoldPosition:
        return self.positions.get(id) or self._holds.positions[id]

    def _move(self, hold: Hold, position: HoldPosition) -> None:
        holder = self._holds.frontiers.hold(hold.on, position.at)
        if (earlier := self._holders.get(hold.id)) is not None:
            earlier.release()
        self._holders[hold.id] = holder
        self.positions[hold.id] = position

    def commit(self) -> None:
        """Called when the moves are on disk. Releases the old times."""
        for id, holder in self._holders.items():
            self._holds.moved(id, self.positions[id], holder)

    def roll_back(self) -> None:
        """Called when the moves are not on disk. Releases the new times."""
        for holder in self._holders.values():
            holder.release()
