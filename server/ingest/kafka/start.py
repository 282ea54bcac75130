"""START OFFSET and START TIMESTAMP: where a source begins to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from protocol.pgwire.errors import PgError, SqlState

_NUMBER_MAX = 2**63 - 1


class Topic(Protocol):
    """The requests about a topic that a start depends on."""

    async def offset_at(self, partition: int, timestamp: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Start:
    """`offsets`: by partition; negative ones count from the end. `timestamp`: milliseconds; negative: before now."""

    offsets: tuple[int, ...] = ()
    timestamp: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Start:
        """Reads the options of a source. PgError if they are invalid."""
        offsets, timestamp = options.get("start offset"), options.get("start timestamp")
        if offsets is not None and timestamp is not None:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "cannot specify START TIMESTAMP and START OFFSET")
        try:
            texts = re.split(r"[\s,]+", offsets.strip(" ()[]")) if offsets is not None else []
            found = cls(tuple(map(int, texts)), None if timestamp is None else int(timestamp))
        except ValueError:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, "START OFFSET must be a list of integers, START TIMESTAMP an integer"
            ) from None
        if any(abs(number) > _NUMBER_MAX for number in (*found.offsets, found.timestamp or 0)):
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "START OFFSET or START TIMESTAMP is out of range",
                hint=f"Use integers from -{_NUMBER_MAX} to {_NUMBER_MAX}. Timestamps are milliseconds since 1970.",
            )
        return found

    @property
    def is_relative(self) -> bool:
        """Whether an offset counts from the end of its partition."""
        return any(offset < 0 for offset in self.offsets)

    def fixed(self, watermarks: Mapping[int, tuple[int, int]], now_s: float) -> Start:
        """The start that does not depend on when it is used. `watermarks`: of the partitions with negative offsets."""
        offsets = (
            self._within(offset, watermarks[number]) if number in watermarks else offset
            for number, offset in enumerate(self.offsets)
        )
        return Start(tuple(offsets), None if self.timestamp is None else self._since_1970(now_s))

    @property
    def options(self) -> dict[str, str]:
        """The options of which `of` makes this."""
        offsets = {"start offset": f"({', '.join(map(str, self.offsets))})"} if self.offsets else {}
        return offsets if self.timestamp is None else {"start timestamp": str(self.timestamp)}

    def check(self, topic: str, partitions: int) -> None:
        """PgError if there are offsets of partitions that the topic does not have."""
        if len(self.offsets) > partitions:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f'START OFFSET has {len(self.offsets)} offsets, but topic "{topic}" has {partitions} partitions',
                hint="Write at most one offset for each partition.",
            )

    async def offset(self, topic: Topic, partition: int, offsets: tuple[int, int], now_s: float) -> int:
        """The first offset to read, within the partition's `offsets`: of the first message, and after the last."""
        low, high = offsets
        if self.timestamp is not None:
            found = await topic.offset_at(partition, self._since_1970(now_s))
            return high if found is None else found
        return self._within(self.offsets[partition], offsets) if partition < len(self.offsets) else low

    def _since_1970(self, now_s: float) -> int:
        assert self.timestamp is not None
        return self.timestamp if self.timestamp >= 0 else max(int(now_s * 1_000) + self.timestamp, 0)

    @staticmethod
    def _within(wanted: int, offsets: tuple[int, int]) -> int:
        low, high = offsets
        return min(max(wanted if wanted >= 0 else high + wanted, low), high)
