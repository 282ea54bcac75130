"""Merges several subscriptions by progress, so that each batch has the changes of all of them at one timestamp. No IO.

How `sync` and `aio` use `Merge`: as a `ResumableStream`, but they read rows only for the stream that `behind()` names.
Each stream has its own connection and its own retries.

Let F be the least frontier of the streams. All times before F are complete in all streams. A batch at t is returned
when t < F, and its token is t + 1 for all streams. A reader returns no batch before that, so that its token and its
map of rows are those of the merged stream, up to the batch that is being collected.

The snapshots of the streams may have different times. The merged snapshot has the greatest of them, T. The updates of
the other streams at times <= T are added to their snapshots.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidewire.batches import Batch, Change, KeyChange, Progress, Row, Snapshot, Update
from tidewire.errors import Retry, WrongToken
from tidewire.query import Query, Token
from tidewire.resumption import Options, ResumableStream

_LAST_TIME = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint(Batch):
    """`parts` maps names of queries to their batches at `time`."""

    time: int
    parts: Mapping[str, Snapshot[Any] | Update[Any]]
    _names: tuple[str, ...]

    @property
    def changes(self) -> dict[str, list[Change[Any]]]:
        """The changes of each query; an empty list for a query that did not change."""
        return {name: self.parts[name].changes if name in self.parts else [] for name in self._names}


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSnapshot(_Joint):
    """The contents of all queries at `time`. `reset`: it replaces everything that was returned before."""

    reset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JointUpdate(_Joint):
    """All changes of all queries at `time`. `parts` has the queries that changed."""


AnyJointBatch = JointSnapshot | JointUpdate | Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class JointOptions:
    """The keyword parameters of `follow_together`, which describes them."""

    row_types: Mapping[str, type] | None
    as_of: int | None
    up_to: int | None
    token: Token | str | None
    rows: Mapping[str, Mapping[Row, Row]] | None
    on_too_old: Literal["raise", "reset"]
    retry: Retry
    hold: str | None
    hold_every_s: float
    auto_ack: bool


class Merge:
    """Invariant: either all readers have a token or none has, except while a batch is collected."""

    def __init__(self, queries: Mapping[str, str | Query], options: JointOptions) -> None:
        """ValueError if there is no query, or a query has its own times. WrongToken: the token has other queries."""
        self._queries = {name: Query(each) if isinstance(each, str) else each for name, each in queries.items()}
        if not self._queries:
            raise ValueError("there is no query to follow")
        if any(query.as_of is not None or query.up_to is not None for query in self._queries.values()):
            raise ValueError("as_of and up_to apply to all queries: give them to follow_together")
        parts = "\0".join(f"{name}\0{query.fingerprint}" for name, query in sorted(self._queries.items()))
        self._fingerprint = hashlib.sha256(parts.encode()).hexdigest()[:16]
        token = Token.parse(options.token) if isinstance(options.token, str) else options.token
        if token is not None and token.fingerprint != self._fingerprint:
            raise WrongToken("the token was made for other queries, other keys or other envelopes")
        self.token = token
        self.streams: dict[str, ResumableStream[Any]] = {}
        for name, query in self._queries.items():
            self.streams[name] = ResumableStream(
                query.text,
                Options(
                    row_type=(options.row_types or {}).get(name),
                    key=query.key,
                    envelope=query.envelope,
                    order_by=query.order_by,
                    as_of=options.as_of,
                    up_to=options.up_to,
                    token=None if token is None else Token(query.fingerprint, token.progress),
                    rows=(options.rows or {}).get(name) if query.key else None,
                    on_too_old=options.on_too_old,
                    retry=options.retry,
                    # One hold for all: the first stream advances it, when the merged batches are acknowledged.
                    hold=None if self.streams else options.hold,
                    hold_every_s=options.hold_every_s,
                ),
            )
        hold = next(iter(self.streams.values())).hold
        self._acknowledge: Callable[[Token], None] = (lambda token: None) if hold is None else hold.acknowledge
        self._auto_ack = options.auto_ack
        self._last: AnyJointBatch | None = None
        self._time: int | None = None  # of the update that is being collected
        self._collected: dict[str, list[Any]] = {}  # kept if a part of a batch raises an error

    @property
    def ended(self) -> bool:
        return all(stream.ended for stream in self.streams.values())

    def acknowledge_last(self) -> None:
        """Called when the application requests the next batch. With `auto_ack` it acknowledges the last one."""
        if self._last is not None and self._auto_ack:
            self._last.ack()

    def behind(self) -> str | None:
        """Returns the name of the stream from which rows are needed: the one with the least frontier. None: all ended.

        The other streams are not read meanwhile, so that their rows wait on the server and not here.
        """
        running = [name for name, stream in self.streams.items() if not stream.ended]
        return min(running, key=lambda name: self.streams[name].reader.frontier, default=None)

    def reset_together(self) -> bool:
        """Resets all streams if one had to be reset. Returns whether: then all connections must be closed."""
        readers = [stream.reader for stream in self.streams.values()]
        if self.token is None or all(reader.token is not None for reader in readers):
            return False
        for stream in self.streams.values():
            stream.reader.reset()
            stream.ended = False
        self.token = self._time = None
        self._collected.clear()
        return True

    def next_batch(self) -> AnyJointBatch | None:
        """Returns the next batch, or None if more rows are needed. An exception loses nothing; see `Reader`."""
        batch = self._snapshot() if self.token is None else self._update()
        if batch is not None:
            self._last = batch
        return batch

    def _snapshot(self) -> JointSnapshot | None:
        starts = [start for stream in self.streams.values() if (start := stream.reader.as_of) is not None]
        if len(starts) < len(self.streams):
            return None
        # A query that reads no relation begins at the greatest timestamp, and is the same at all times.
        time = max((start for start in starts if start < _LAST_TIME), default=_LAST_TIME)
        if self._frontier() <= time:
            return None
        for name, stream in self.streams.items():
            reader = stream.reader
            while reader.token is None or (reader.next_time is not None and reader.next_time <= time):
                batch = stream.next_batch()
                if isinstance(batch, Snapshot):
                    self._collected[name] = []
                self._collected[name].append(batch)
        token = self._advance(time + 1)
        parts = {name: _folded(self._collected[name], time, self._queries[name]) for name in self.streams}
        self._collected.clear()
        return JointSnapshot(
            token=token,
            _acknowledge=self._acknowledge,
            time=time,
            parts=parts,
            _names=tuple(self.streams),
            reset=any(part.reset for part in parts.values()),
        )

    def _update(self) -> JointUpdate | Progress | None:
        assert self.token is not None
        readers = [stream.reader for stream in self.streams.values()]
        if self._time is None:
            time = min((reader.next_time for reader in readers if reader.next_time is not None), default=None)
            if time is None or time >= self._frontier():
                closed = min(reader.progress for reader in readers)
                if not self.token.progress < closed <= _LAST_TIME:  # greater: all have ended
                    return None
                return Progress(token=self._advance(closed), _acknowledge=self._acknowledge)
            self._time = time
        elif self._time >= self._frontier():
            return None
        for name, stream in self.streams.items():
            if name not in self._collected and stream.reader.next_time == self._time:
                self._collected[name] = [stream.next_batch()]
        update = JointUpdate(
            token=self._advance(self._time + 1),
            _acknowledge=self._acknowledge,
            time=self._time,
            parts={name: batch for name, (batch,) in self._collected.items()},
            _names=tuple(self.streams),
        )
        self._time, self._collected = None, {}
        return update

    def _frontier(self) -> int:
        return min(stream.reader.frontier for stream in self.streams.values())

    def _advance(self, progress: int) -> Token:
        """All streams have been returned up to this time, also those that had no change."""
        for stream in self.streams.values():
            stream.advance(progress)
        self.token = Token(self._fingerprint, progress)
        return self.token


def _folded(batches: list[Any], time: int, query: Query) -> Snapshot[Any]:
    """Returns the snapshot that follows from an earlier one by updates."""
    snapshot, *updates = batches
    if not updates:
        return dataclasses.replace(snapshot, time=time, token=Token(query.fingerprint, time + 1))
    # Rows are compared by their text: values may be neither hashable nor equal to themselves (NaN).
    changes: dict[str, tuple[Change[Row], Any, int]] = {}
    keys: dict[str, KeyChange] = {}
    for batch in batches:
        for raw, change in zip(batch._raw or (), batch.changes, strict=True):
            _, _, diff = changes.get(text := repr(raw.row), (raw, change, 0))
            changes[text] = raw, change, diff + raw.diff
        keys |= {repr(change.key): change for change in batch.key_changes}
    left = [entry for entry in changes.values() if entry[2]]
    state = "insert" if query.envelope == "debezium" else "upsert"
    return dataclasses.replace(
        snapshot,
        time=time,
        token=Token(query.fingerprint, time + 1),
        changes=[Change(change.row, diff) for _, change, diff in left],
        _raw=[Change(raw.row, diff) for raw, _, diff in left] if query.envelope is None else None,
        key_changes=[
            change if change.state == "key_violation" else KeyChange(state, change.key, None, change.after)
            for change in keys.values()
            if change.state != "delete"
        ],
    )
