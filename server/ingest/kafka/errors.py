"""Messages that could not be decoded. An error is live until a later message retracts it.

Live errors are stored with the source's position, so that they can be retracted after a restart. While there are some,
one of them is the error of the collection (`catalog.collection_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

from catalog.collection_errors import CollectionError
from protocol.pgwire.errors import PgError, SqlState

ERRORS_MAX = 100_000  # of one output; bounds the memory of a topic that does not have the output's format
_PREFIX = "error/"


LASTING_HINT = (
    "No later message removes this error. Drop the source, and create it again with the format of the topic or with a "
    "START OFFSET after the message."
)


def identity(kind: str, data: bytes) -> str:
    """The identity of an error: `data` is a key, or a partition and an offset."""
    return f"{kind}:{blake2b(data, digest_size=16).hexdigest()}"


@dataclass
class Failures:
    """The live errors of an output, by identity. `prefix`: of their keys in the source's state.

    `count_invalid`: called with the number of new errors, and the text of the last one.
    """

    prefix: str
    live: dict[str, CollectionError] = field(default_factory=dict)
    count_invalid: Callable[[int, str], None] | None = None

    @classmethod
    def restored(
        cls,
        prefix: str,
        state: Mapping[str, bytes | None],
        count_invalid: Callable[[int, str], None] | None = None,
    ) -> Failures:
        start = prefix + _PREFIX
        live = {
            key[len(start) :]: CollectionError(**json.loads(value))
            for key, value in state.items()
            if key.startswith(start) and value is not None
        }
        return cls(prefix, live, count_invalid)

    def changed(self, changes: Mapping[str, CollectionError | None]) -> dict[str, bytes | None]:
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
            state[f"{self.prefix}{_PREFIX}{id}"] = json.dumps(asdict(failure)).encode()
        if new := [failure for failure in changes.values() if failure]:
            self.count(len(new), new[-1].detail or "", new[-1].message)
        if len(self.live) > ERRORS_MAX:
            raise PgError(
                SqlState.DATA_EXCEPTION,
                f"more than {ERRORS_MAX} messages could not be decoded",
                detail=next(iter(self.live.values())).message,
                hint="Drop the source and create it with the format of the topic.",
            )
        return state

    def count(self, number: int, place: str, reason: str) -> None:
        """Counts messages that could not be decoded. `place`, `reason`: of the last one."""
        if self.count_invalid is not None:
            self.count_invalid(number, f"{place.rstrip('.')}: {reason}")

    def error(self, current: CollectionError | None) -> CollectionError | None:
        """The error of the output: `current`, the last one, while it is live; otherwise another live error."""
        live = self.live.values()
        return current if current in live else next(iter(live), None)
