"""The result of decoding messages of either form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.cdcv2.messages import Progress
from protocol.columnar.reasons import joined_reasons


@dataclass(frozen=True)
class Decoded:
    """The contents of the valid messages, and which messages are invalid.

    `updates`: all updates; the columns of the data are c0, c1, ... `reason(row)`: why a message is invalid.
    """

    updates: pa.Table
    statements: Sequence[Progress]
    failed: NDArray[np.bool_]
    reason: Callable[[int], str]

    @classmethod
    def joined(cls, parts: Sequence[Decoded]) -> Decoded:
        """Returns the decoded messages of consecutive parts as one."""
        return cls(
            pa.concat_tables([part.updates for part in parts]),
            [statement for part in parts for statement in part.statements],
            np.concatenate([part.failed for part in parts]),
            joined_reasons([(len(part.failed), part.reason) for part in parts]),
        )
