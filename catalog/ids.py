"""The types of ids, timestamps and diffs."""

from __future__ import annotations

import re
import threading
from typing import NewType

ObjectId = NewType("ObjectId", str)
Timestamp = NewType("Timestamp", int)  # milliseconds since 1970-01-01 UTC
TIMESTAMP_MAX = 18446744073709551615  # the empty frontier in the protocol; internally it is None
Diff = NewType("Diff", int)  # signed count of copies of a row


class IdCounter:
    """The numbers of new objects. The states of open transactions share one, so that their objects have different ids.

    The number of an object that is not committed is not used again before the next start.
    """

    def __init__(self) -> None:
        self._next = 0
        self._lock = threading.Lock()

    def take(self, least: int) -> int:
        """Returns the next number, which is at least `least`."""
        with self._lock:
            number = max(least, self._next)
            self._next = number + 1
            return number


USER_OBJECTS = 16384  # the OID of `u0`


def user_oid(id: ObjectId) -> int:
    """The OID of a user's object."""
    return USER_OBJECTS + int(id[1:])


_TYPE_ID = re.compile(r'enum \["(u\d+)"|"\$id"\."(u\d+)"')


def types_in(text: str) -> frozenset[ObjectId]:
    """The user-defined types in the stored spelling of a column's type, or that a stored expression names by id."""
    return frozenset(ObjectId(a or b) for a, b in _TYPE_ID.findall(text)) if '"u' in text else frozenset()
