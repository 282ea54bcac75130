"""The types of ids, timestamps and diffs. A module of its own because `objects` and `roles` both import it."""

from __future__ import annotations

from typing import NewType

ObjectId = NewType("ObjectId", str)
Timestamp = NewType("Timestamp", int)  # milliseconds since 1970-01-01 UTC
Diff = NewType("Diff", int)  # signed count of copies of a row
