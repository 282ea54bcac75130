"""Where Spark comes from, as the engine sees it: a driver that can be started again and again, and its settings."""

from __future__ import annotations

import threading
from typing import Protocol

from server.spark.arrow_path import SessionPath

# What every session needs for PostgreSQL's meaning, and what makes small statements fast. Sources: measurements.
SESSION_PROPERTIES = {
    "spark.sql.ansi.enabled": "true",  # overflow, division by zero and bad casts are errors, as in PostgreSQL
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",  # its functions are off by default
    "spark.sql.cteRecursionLevelLimit": "10000",  # PostgreSQL has none; each level is a job of its own
    "spark.sql.adaptive.enabled": "false",  # costs a small aggregate a fifth more
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # What a plan holds as rows can fold without a job, but is slow to plan: from 10,000 rows on an RDD is faster,
    # at 10^6 rows ten times.
    "spark.sql.execution.arrow.localRelationThreshold": "256KB",
}


class Driver(Protocol):
    """A Spark that is up: sessions come out of it, until it is gone."""

    @property
    def pid(self) -> int | None:
        """Its process, if that is a child of ours."""

    def path(self, slot: str) -> SessionPath:
        """A session of its own: temporary views and settings are private, Spark and its caches are shared."""

    def cancel_jobs(self, group: str) -> None:
        """Cancels the group's jobs, those that run and those that are yet to come."""

    def fell(self) -> bool:
        """Of a driver that is of no use any more: sees to its end, and says whether it ended for want of memory."""

    def wait(self) -> str:
        """Returns when the driver is gone, with the reason in one line."""

    def close(self) -> None:
        """Ends it now, if it is not gone, and lets go of what it leaves behind."""


class Spark(Protocol):
    """Starts drivers, one after another."""

    pause_max_s: float
    """The longest pause between two starts."""

    @property
    def pid(self) -> int | None:
        """The process of the driver that lives, or starts, now, if that is a child of ours."""

    def prepare(self) -> None:
        """Called before the first start, until it succeeds. EngineUnavailable if something must be installed first."""

    def start(self, stopping: threading.Event) -> Driver:
        """Waits until Spark is up. EngineUnavailable when it cannot be, or `stopping` is set first."""

    def stop(self, grace_s: float) -> None:
        """Ends the driver that lives or starts now: in good order, or after `grace_s` seconds without it."""
