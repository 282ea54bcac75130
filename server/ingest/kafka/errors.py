"""Messages that could not be decoded. An error lives until a later message retracts it.

Errors are stored with the source's position, so that they can be retracted after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from protocol.pgwire.errors import PgError, SqlState

ERRORS_MAX = 100_000  # of one output; bounds the memory of a topic that does not have the output's format
_PREFIX = "error/"


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """Why the messages with an identity make the output unreadable."""

    message: str
    detail: str

    def error(self) -> PgError:
        return PgError(SqlState.DATA_EXCEPTION, self.message, detail=self.detail)


def identity(kind: str, data: bytes) -> str:
    """The identity of an error: `data` is a key, or a partition and an offset."""
    return f"{kind}:{blake2b(data, digest_size=16).hexdigest()}"


@dataclass
class Failures:
    """The live errors of an output, by identity. `prefix`: of their keys in the source's state."""

    prefix: str
    live: dict[str, DecodeFailure] = field(default_factory=dict)

    @classmethod
    def restored(cls, prefix: str, state: Mapping[str, bytes | None]) -> Failures:
        start = prefix + _PREFIX
        live = {
            key[len(start) :]: DecodeFailure(**json.loads(value))
            for key, value in state.items()
            if key.startswith(start) and value is not None
        }
        return cls(prefix, live)

    def changed(self, changes: Mapping[str, DecodeFailure | None]) -> dict[str, bytes | None]:
        """Applies changes by identity (None: retracted), and returns the changes of the state.

        PgError if there are too many errors.
        """
        state: dict[str, bytes | None] = {}
        for id, failure in changes.items():
            if failure is None:
                if self.live.pop(id, None) is not None:
                    state[f"{self.prefix}{_PREFIX}{id}"] = None
                continue
            self.live[id] = failure
            value = {"message": failure.message, "detail": failure.detail}
            state[f"{self.prefix}{_PREFIX}{id}"] = json.dumps(value).encode()
        if len(self.live) > ERRORS_MAX:
            raise PgError(
                SqlState.DATA_EXCEPTION,
                f"more than {ERRORS_MAX} messages could not be decoded",
                detail=next(iter(self.live.values())).message,
                hint="Drop the source and create it with the format of the topic.",
            )
        return state

    @property
    def error(self) -> PgError | None:
        """The error of queries on the output; None if they can be answered."""
        return next((failure.error() for failure in self.live.values()), None)
