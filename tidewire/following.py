"""All of a subscription but its connections, for the sync and the async shell alike: no IO, and time is an argument."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal, TypedDict

from tidewire.batches import AnyBatch, Row
from tidewire.errors import Retry, TokenTooOld, Verdict, judge
from tidewire.query import Envelope, Query, Token, is_name
from tidewire.reader import Reader

log = logging.getLogger("tidewire")


class Options(TypedDict, total=False):
    """What `subscribe` takes beside the address and the query."""

    key: tuple[str, ...]
    """Columns that tell rows apart: keeps `batch.rows`, a map from their values to the other columns'."""
    envelope: Envelope | None
    """"upsert" or "debezium": `batch.key_changes` instead of `batch.changes`; needs `key`."""
    order_by: str | None
    """The order of the changes within a timestamp, as in SQL: columns and `mz_diff`."""
    as_of: int | None
    """Take the snapshot at this time, in ms since 1970, and not at the present."""
    up_to: int | None
    """End before this time."""
    token: Token | str | None
    """Go on behind the batch that this token came with, without a snapshot."""
    rows: Mapping[Row, Row] | None
    """With `token` and `key`: what `batch.rows` was then."""
    on_too_old: Literal["raise", "reset"]
    """When the history behind the token is gone: raise TokenTooOld, or take a new snapshot, with `reset` set."""
    retry: Retry
    """How long to try when the connection is lost."""
    hold: str | None
    """The name, as in SQL, of a HOLD to advance behind what has been acknowledged."""
    hold_every_s: float
    """Advance it at most so often; acknowledgements in between count together. One second unless given."""
    auto_ack: bool
    """Asking for the next batch acknowledges the one before. True unless given; else `batch.ack()` does it."""


class Hold:
    """When to advance a hold, and to what: to one before the acknowledged progress, never back."""

    def __init__(self, name: str, every_s: float) -> None:
        if not is_name(name):
            raise ValueError(f"this is no name of a hold: {name!r}")
        self._name = name
        self._every_s = every_s
        self._next_s = float("-inf")
        self._acknowledged = self._sent = 0

    def acknowledge(self, token: Token) -> None:
        self._acknowledged = max(self._acknowledged, token.progress)

    def advance(self, now_s: float, *, final: bool = False) -> str | None:
        """The statement to run now, if any; `final`: whatever the time. It counts as done, see `failed`."""
        if self._acknowledged <= self._sent or (now_s < self._next_s and not final):
            return None
        self._sent, self._next_s = self._acknowledged, now_s + self._every_s
        return f"ALTER HOLD {self._name} ADVANCE TO {self._sent - 1}"

    def failed(self, error: Exception, sqlstate: str | None) -> None:
        """An advance that got lost is made good by the next one. Raises an error that the next would meet too."""
        if judge(sqlstate, str(error)) is not Verdict.RETRY:
            raise error
        log.warning("hold %s was not advanced: %s", self._name, error)


class Following:
    """The reader, the count of failures and the hold of one subscription. What a shell does with them:

    for every connection: ask `statement()`, give `reader` the rows, `finished()` at the end of the stream
    hand over `next_batch()` until it is None, and only then read on
    an error of the driver: `failed(...)` raises, or tells how long to wait before the next connection
    """

    def __init__(self, query: str, options: Options) -> None:
        token, hold = options.get("token"), options.get("hold")
        self.hold = None if hold is None else Hold(hold, options.get("hold_every_s", 1.0))
        self.reader = Reader(
            Query(
                query,
                tuple(options.get("key", ())),
                options.get("envelope"),
                options.get("order_by"),
                options.get("as_of"),
                options.get("up_to"),
            ),
            Token.parse(token) if isinstance(token, str) else token,
            options.get("rows"),
            self.hold.acknowledge if self.hold is not None else lambda token: None,
        )
        self.ended = False
        self._retry = options.get("retry", Retry())
        self._reset_when_too_old = options.get("on_too_old", "raise") == "reset"
        self._auto_ack = options.get("auto_ack", True)
        self._last: AnyBatch | None = None
        self._failures = 0

    def acknowledge_last(self) -> None:
        """The application came back for more."""
        if self._last is not None and self._auto_ack:
            self._last.ack()

    def next_batch(self) -> AnyBatch | None:
        batch = self.reader.next_batch()
        if batch is not None:
            self._last, self._failures = batch, 0
        return batch

    def finished(self) -> None:
        """The stream came to its end."""
        self.reader.finish()
        self.ended = True

    def failed(self, error: Exception, sqlstate: str | None) -> float:
        """The seconds to wait before the next attempt. Raises what another attempt cannot mend."""
        match judge(sqlstate, str(error)):
            case Verdict.RETRY:
                self._failures += 1
                if self._failures > self._retry.attempts:
                    error.add_note(f"tidewire gave up after {self._retry.attempts} attempts to come back")
                    raise error
                delay_s = self._retry.delay_s(self._failures)
                log.warning("lost the stream (%s), attempt %d in %.2f s", error, self._failures, delay_s)
                return delay_s
            case Verdict.TOO_OLD if self._reset_when_too_old:
                log.warning("the history behind %s is gone: taking a new snapshot", self.reader.token)
                self.reader.reset()
                return 0.0
            case Verdict.TOO_OLD:
                token = self.reader.token
                place = "at the AS OF asked for" if token is None else f"behind the token {token}"
                raise TokenTooOld(f"the history {place} is no longer readable") from error
            case Verdict.RAISE:
                raise error
