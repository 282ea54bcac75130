"""What goes wrong beside the driver's own errors, and which of the server's errors a new connection can mend."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto


class TidewireError(Exception):
    """Any of the library's own errors."""


class TokenTooOld(TidewireError):
    """The history behind the token, or at the AS OF asked for, is no longer there. Only a new snapshot helps."""


class WrongToken(TidewireError, ValueError):
    """The token was made for another query."""


class KeyViolation(TidewireError):
    """More than one row has the key, so there is no map from key to row."""

    def __init__(self, key: tuple[object, ...], time: int) -> None:
        super().__init__(f"more than one row has the key {key!r} at {time}")
        self.key = key
        self.time = time


class BrokenPromise(TidewireError):
    """The stream contradicts itself: a mistake of the server or of this library. Do not go on from here."""


class Verdict(Enum):
    """What an error calls for."""

    RETRY = auto()
    TOO_OLD = auto()
    RAISE = auto()


# Lost connections, a server without resources, starting, stopping or impatient with an idle transaction, and a
# subscription that fell behind. Whatever else the server says, it would say again; 57014 is somebody's wish.
_RETRIED_CLASSES = ("08", "53")
_RETRIED = ("25P03", "54000", "57P01", "57P02", "57P03", "57P05")


def judge(sqlstate: str | None, message: str) -> Verdict:
    """`sqlstate` is None when the connection broke without a word of the server's."""
    if sqlstate is None or sqlstate in _RETRIED or sqlstate.startswith(_RETRIED_CLASSES):
        return Verdict.RETRY
    if sqlstate == "22000" and "valid timestamp" in message:
        return Verdict.TOO_OLD
    return Verdict.RAISE


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try in vain, one attempt after another, and how long to wait: up to `first_s`, doubled each time.

    The wait is a random part of that, so that clients of one server do not come back together. A batch that arrives
    starts the count anew.
    """

    attempts: int = 10
    first_s: float = 0.2
    longest_s: float = 15.0

    def delay_s(self, failures: int) -> float:
        """Before the next attempt, after so many failures in a row."""
        return random.uniform(0, min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30)))
