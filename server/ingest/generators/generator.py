"""The interface of a generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from server.ingest.source_definition import Output


class Generator(Protocol):
    """Changes by tick. The ticks before `snapshot_ticks` are generated at once, the others one per interval."""

    @property
    def outputs(self) -> Sequence[Output]: ...

    @property
    def snapshot_ticks(self) -> int: ...

    @property
    def interval_us(self) -> int | None:
        """The default of TICK INTERVAL in microseconds. None: without TICK INTERVAL and UP TO, only the snapshot."""
        ...

    def changes(self, references: Sequence[str], first: int, end: int, start_us: int) -> Mapping[str, list[pa.Table]]:
        """The changes of the outputs with these references in the ticks `first <= tick < end`: rows, or with diffs.

        `start_us`: when the source was created, in microseconds since 1970. Called in a thread.
        """
        ...
