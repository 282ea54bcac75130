"""What `sync` and `aio` have in common: retries, resumption, acknowledgements and holds. No IO, no clock."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal

from tidewire.batches import AnyBatch, Row
from tidewire.errors import Retry, TokenTooOld, Verdict, judge
from tidewire.query import Envelope, Query, Token, is_name
from tidewire.reader import Reader
from tidewire.rows import R

log = logging.getLogger("tidewire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Generic[R]):
    """The keyword parameters of `subscribe`, which describes them."""

    row_type: type[R] | None = None
    key: Sequence[str] = ()
    envelope: Envelope | None = None
    order_by: str | None = None
    as_of: int | None = None
    up_to: int | None = None
    token: Token | str | None = None
    rows: Mapping[Row, Row] | None = None
    on_too_old: Literal["raise", "reset"] = "raise"
    retry: Retry = field(default_factory=Retry)
    hold: str | None = None
    hold_every_s: float = 1.0
    auto_ack: bool = True


class Hold:
    """Decides when to advance a hold, and to which time: the acknowledged progress - 1, never backwards."""

    def __init__(self, name: str, every_s: float) -> None:
        if not is_name(name):
            raise ValueError(f"not the name of a hold: {name!r}")
        self._name = name
        self._every_s = every_s
        self._next_s = float("-inf")
        self._acknowledged = self._sent = 0

    def acknowledge(self, token: Token) -> None:
        self._acknowledged = max(self._acknowledged, token.progress)

    def advance(self, now_s: float, *, final: bool = False) -> str | None:
        """Returns the statement to run now, or None. `final` ignores the minimum interval.

        The advance counts as done even if the statement fails; see `failed`.
        """
        if self._acknowledged <= self._sent or (now_s < self._next_s and not final):
            return None
        self._sent, self._next_s = self._acknowledged, now_s + self._every_s
        return f"ALTER HOLD {self._name} ADVANCE TO {self._sent - 1}"

    def failed(self, error: Exception, sqlstate: str | None) -> None:
        """Ignores a transient error, because the next advance includes the failed one. Raises any other error."""
        if judge(sqlstate, str(error)) is not Verdict.RETRY:
            raise error
        log.warning("hold %s was not advanced: %s", self._name, error)


class ResumableStream(Generic[R]):
    """The reader, the count of failures and the hold of one subscription. How `sync` and `aio` use it:

    - For every connection: send `reader.statement()`, pass the rows to `reader`, call `finished()` at the end of the
      stream.
    - Return `next_batch()` until it is None; only then read further rows.
    - On an error of the driver: `failed(...)` raises, or returns how long to wait before the next connection.
    """

    def __init__(self, query: str, options: Options[R]) -> None:
        token = options.token
        self.hold = None if options.hold is None else Hold(options.hold, options.hold_every_s)
        self.reader = Reader(
            Query(query, tuple(options.key), options.envelope, options.order_by, options.as_of, options.up_to),
            Token.parse(token) if isinstance(token, str) else token,
            options.rows,
            self.hold.acknowledge if self.hold is not None else lambda token: None,
            options.row_type,
        )
        self.ended = False
        self._retry = options.retry
        self._reset_when_too_old = options.on_too_old == "reset"
        self._auto_ack = options.auto_ack
        self._last: AnyBatch[R] | None = None
        self._failures = 0

    def acknowledge_last(self) -> None:
        """Called when the application requests the next batch. With `auto_ack` it acknowledges the last one."""
        if self._last is not None and self._auto_ack:
            self._last.ack()

    def next_batch(self) -> AnyBatch[R] | None:
        batch = self.reader.next_batch()
        if batch is not None:
            self._last, self._failures = batch, 0
        return batch

    def advance(self, progress: int) -> None:
        """Moves the token without a batch, and resets the count of failures as a batch does."""
        self.reader.advance(progress)
        self._failures = 0

    def finished(self) -> None:
        """Called when the server has ended the stream."""
        self.reader.finish()
        self.ended = True

    def failed(self, error: Exception, sqlstate: str | None) -> float:
        """Returns the seconds to wait before the next attempt. Raises if a retry is pointless or `retry` is exhausted.

        TokenTooOld if the history has been compacted, unless `on_too_old` is "reset".
        """
        match judge(sqlstate, str(error)):
            case Verdict.RETRY:
                self._failures += 1
                if self._failures > self._retry.attempts:
                    error.add_note(f"tidewire gave up after {self._retry.attempts} attempts to reconnect")
                    raise error
                delay_s = self._retry.delay_s(self._failures)
                log.warning("lost the stream (%s), attempt %d in %.2f s", error, self._failures, delay_s)
                return delay_s
            case Verdict.TOO_OLD if self._reset_when_too_old:
                log.warning("no history after the token %s: reading a new snapshot", self.reader.token)
                self.reader.reset()
                return 0.0
            case Verdict.TOO_OLD:
                token = self.reader.token
                start = "at the requested AS OF" if token is None else f"after the token {token}"
                raise TokenTooOld(f"the history {start} is no longer readable") from error
            case Verdict.RAISE:
                raise error
