"""The connected sessions and their subscriptions, for mz_sessions and mz_subscriptions."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from catalog.ids import ObjectId
from server.coordinator.endpoints import Endpoints


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A connected session.

    `connected_us`: microseconds since 1970. `user` is the name that the client sent, `role` the role with which it is
    connected.
    """

    id: str
    process_id: int
    user: str
    endpoints: Endpoints
    connected_us: int
    role: ObjectId

    @property
    def client_ip(self) -> str | None:
        """The client's IP address; None if the connection has none."""
        return None if self.endpoints.client is None else self.endpoints.client.ip


@dataclass(frozen=True, slots=True)
class Observation:
    """The activity of a session at one moment, for pg_stat_activity. Times: microseconds since 1970; None: unknown."""

    database: str
    application_name: str
    state: str
    query: str
    query_us: int | None
    changed_us: int | None
    transaction_us: int | None
    waits_for_lock: bool


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """A running subscription.

    `output`: the name of the output mode. `references`: the relations that the query names.
    """

    id: str
    session_id: str
    output: str
    created_us: int
    references: tuple[ObjectId, ...]


@dataclass(slots=True)
class CopyProgress:
    """A running COPY, for pg_stat_progress_copy. `relation` None: a query is copied. `bytes`: of the data so far."""

    command: str
    relation: ObjectId | None
    bytes: int = 0
    rows: int = 0


@dataclass(slots=True)
class Activity:
    """Sessions by process id and subscriptions by id. Each change of the entries increments their revision."""

    sessions: dict[int, SessionEntry] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionEntry] = field(default_factory=dict)
    observers: dict[int, Callable[[], Observation]] = field(default_factory=dict)
    """Functions that return what a session does now, by the process id of the session."""
    copies: dict[int, CopyProgress] = field(default_factory=dict)
    """The running COPY statements, by the process id of their session."""
    started_us: int = field(default_factory=lambda: _now_us())
    """The start of the server, in microseconds since 1970."""
    sessions_revision: int = 0
    subscriptions_revision: int = 0
    sessions_opened: int = 0
    subscription_checks: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By subscription: ends it if its role has lost a privilege, or a view of its query was dropped or replaced. Called
    when roles, privileges or views have changed.
    """
    subscriptions_started: Counter[str] = field(default_factory=Counter)
    """The number of subscriptions that have started, by output mode."""
    configured_us: int = field(default_factory=lambda: _now_us())
    """The time at which the rules and certificates were read last, in microseconds since 1970."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _last_transaction: int = 0

    def next_transaction(self) -> int:
        """Returns a number for a transaction: the time in microseconds since 1970, or the next unused number."""
        self._last_transaction = max(self._last_transaction + 1, _now_us())
        return self._last_transaction

    def configured(self) -> None:
        """Notes that the rules and certificates were read again."""
        self.configured_us = _now_us()

    def connected(self, process_id: int, user: str, role: ObjectId, endpoints: Endpoints) -> None:
        self.sessions[process_id] = SessionEntry(str(uuid.uuid4()), process_id, user, endpoints, _now_us(), role)
        self.sessions_opened += 1
        self.sessions_revision += 1

    @contextmanager
    def copying(self, process_id: int, command: str, relation: ObjectId | None) -> Iterator[CopyProgress]:
        """Registers a COPY while it runs."""
        self.copies[process_id] = progress = CopyProgress(command, relation)
        try:
            yield progress
        finally:
            del self.copies[process_id]

    def disconnected(self, process_id: int) -> None:
        self.observers.pop(process_id, None)
        if self.sessions.pop(process_id, None) is not None:
            self.sessions_revision += 1

    def subscribed(
        self, process_id: int, output: str, references: Iterable[ObjectId], check: Callable[[], None]
    ) -> Callable[[], None]:
        """Registers a subscription. Returns the function to call when it ends. `check`: see `subscription_checks`."""
        id = f"t{next(self._numbers)}"
        session = self.sessions[process_id]
        self.subscriptions[id] = SubscriptionEntry(id, session.id, output, _now_us(), tuple(sorted(references)))
        self.subscription_checks[id] = check
        self.subscriptions_revision += 1

        def ended() -> None:
            self.subscription_checks.pop(id, None)
            if self.subscriptions.pop(id, None) is not None:
                self.subscriptions_revision += 1

        return ended


def _now_us() -> int:
    return time.time_ns() // 1_000
