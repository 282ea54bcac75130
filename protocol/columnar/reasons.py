"""Why rows that were decoded in parts are invalid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def joined_reasons(parts: Sequence[tuple[int, Callable[[int], str]]]) -> Callable[[int], str]:
    """The function that says why a row of consecutive parts is invalid.

    `parts`: the number of rows of each part, and the function for the rows of this part, which count from 0.
    """
    starts = np.cumsum([0, *(count for count, _ in parts)])

    def reason(row: int) -> str:
        at = int(np.searchsorted(starts, row, "right")) - 1
        return parts[at][1](row - int(starts[at]))

    return reason
