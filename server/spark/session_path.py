"""The interface between the pool and one Spark session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa


class Disconnected(Exception):
    """The connection to Spark was lost during a statement. The session cannot be used any more."""


class SessionPath(Protocol):
    """Exchanges statements and tables with one Spark session. Used by one thread only."""

    @property
    def parts(self) -> Mapping[str, float]:
        """The durations of the last statement's phases in seconds; empty if this path does not measure them."""

    def run(
        self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool = False
    ) -> pa.Table:
        """Drops the temporary views `drop`, creates `views`, runs `sql`, and returns its rows (see `from_spark`).

        `repeats`: the statement is expected to run again over other rows, so its plan may be kept.

        All Spark jobs of the statement belong to the job group `group`. None of them runs after `run` has returned or
        raised. `errors.Failure` for an error of Spark; the views may then exist or not. `Disconnected` if the
        connection to Spark is lost.
        """

    def close(self) -> None:
        """Closes the connection. The session is not used again."""
