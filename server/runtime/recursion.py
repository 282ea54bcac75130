"""How deeply statements and values may be nested: the same in the server and in the processes that compute for it.

Parsing and planning are recursive, a few frames for each level of nesting, and so is the work on jsonb values.
"""

from __future__ import annotations

import sys

RECURSION_MAX = 10_000


def allow_nesting() -> None:
    """Sets the limit of recursion of this process."""
    sys.setrecursionlimit(RECURSION_MAX)
