"""The library's exceptions, the classification of server errors into retryable and final, and the retry delays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class TidewireError(Exception):
    """The base class of the library's errors."""


class TokenTooOld(TidewireError):
    """The history after the token, or at the requested AS OF, has been compacted. Only a new snapshot can be read."""


class WrongToken(TidewireError, ValueError):
    """The token was made for another query."""


class KeyViolation(TidewireError):
    """More than one row has this key, so the rows do not form a map from key to row."""

    def __init__(self, key: tuple[object, ...], time: int) -> None:
        super().__init__(f"more than one row has the key {key!r} at {time}")
        self.key = key
        self.time = time


class RowTypeMismatch(TidewireError, TypeError):
    """The columns of the query do not match the fields of `row_type`.

    `missing`: fields without a default that have no column. `surplus`: columns that have no field. `repeated`: names
    that several columns have.
    """

    def __init__(
        self, row_type: type, missing: Sequence[str], surplus: Sequence[str], repeated: Sequence[str] = ()
    ) -> None:
        found = (("missing", missing), ("surplus", surplus), ("repeated", repeated))
        problems = "; ".join(f"{word} columns: {', '.join(names)}" for word, names in found if names)
        super().__init__(f"the columns of the query do not match {row_type.__qualname__}: {problems}")
        self.missing = tuple(missing)
        self.surplus = tuple(surplus)
        self.repeated = tuple(repeated)


class BrokenPromise(TidewireError):
    """The stream contradicts itself, because of a bug in the server or in this library. Do not resume from here."""


class Verdict(Enum):
    """The reaction to an error: reconnect, treat the token as too old, or raise."""

    RETRY = auto()
    TOO_OLD = auto()
    RAISE = auto()


# Retried: lost connections (08), a lack of resources (53), a server that starts or stops (57P01 to 57P03), idle
# timeouts (25P03, 57P05), and a subscription that the server ended because it fell behind (54000). Other errors would
# recur. 57014 is not retried because a user requested the cancellation.
_RETRIED_CLASSES = ("08", "53")
_RETRIED = ("25P03", "54000", "57P01", "57P02", "57P03", "57P05")


def judge(sqlstate: str | None, message: str) -> Verdict:
    """Classifies an error. `sqlstate` is None if the connection broke without an error message from the server."""
    if sqlstate is None or sqlstate in _RETRIED or sqlstate.startswith(_RETRIED_CLASSES):
        return Verdict.RETRY
    if sqlstate == "22000" and "valid timestamp" in message:
        return Verdict.TOO_OLD
    return Verdict.RAISE


@dataclass(frozen=True, slots=True)
class Retry:
    """How many consecutive failed attempts are allowed, and how long to wait between them.

    The n-th wait is random between 0 and `min(longest_s, first_s * 2^(n - 1))` seconds, so that the clients of one
    server do not reconnect simultaneously. A batch that is returned resets the count.
    """

    attempts: int = 10
    first_s: float = 0.2
    longest_s: float = 15.0

    def delay_s(self, failures: int) -> float:
        """Returns the seconds to wait before the next attempt, after this many consecutive failures (at least 1)."""
        return random.uniform(0, min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30)))
