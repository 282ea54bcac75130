"""How things are named inside: ids and times. `objects` and `roles` both need them."""

from __future__ import annotations

from typing import NewType

ObjectId = NewType("ObjectId", str)
Timestamp = NewType("Timestamp", int)  # milliseconds since 1970-01-01 UTC
Diff = NewType("Diff", int)  # signed count of copies of a row
