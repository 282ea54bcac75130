"""What a form's decoder returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.cdcv2.messages import Progress


@dataclass(frozen=True)
class Decoded:
    """The valid messages, and which were not.

    `updates`: all updates; the columns of the data are c0, c1, ... `reason(row)`: why a message is invalid.
    """

    updates: pa.Table
    statements: Sequence[Progress]
    failed: NDArray[np.bool_]
    reason: Callable[[int], str]
