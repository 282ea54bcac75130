"""The interfaces between the engine and a Spark driver, and the settings that every Spark session gets."""

from __future__ import annotations

import threading
from typing import Protocol

from server.spark.session_path import SessionPath

# Settings of every session: PostgreSQL's semantics, and low latency for small statements. Source: measurements.
SESSION_PROPERTIES = {
    "spark.sql.ansi.enabled": "true",  # overflow, division by zero and bad casts are errors, as in PostgreSQL
    "spark.sql.caseSensitive": "true",
    # The planner has resolved positions, so that an integer in ORDER BY and GROUP BY is a value.
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",  # enables the functions of TIME, which are off by default
    "spark.sql.cteRecursionLevelLimit": "10000",  # PostgreSQL has no limit; each level runs as a separate job
    "spark.sql.adaptive.enabled": "false",  # adaptive execution makes a small aggregate 20 % slower
    # This rule moves a correlated subquery of the select list into a LIMIT. It becomes a join there, and another rule
    # removes the sort below the join, so that the LIMIT would return any rows.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # A LocalRelation can be folded without a job but is slow to plan: from 10,000 rows on an RDD is faster, at 10^6
    # rows by a factor of ten.
    "spark.sql.execution.arrow.localRelationThreshold": "256KB",
    # The parser keeps what it has learned from each statement, 6 kB for each state. Without a limit, a few hundred
    # complex statements fill the heap.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushRatio": "10",  # percent of the heap
}


class Driver(Protocol):
    """A running Spark driver, which creates sessions until it ends."""

    @property
    def pid(self) -> int | None:
        """The driver's process id; None if it is not a child of this process."""

    def path(self, slot: str) -> SessionPath:
        """Returns a new session. Temporary views and settings are private to it; Spark and its caches are shared."""

    def cancel_jobs(self, group: str) -> None:
        """Cancels the running and the future jobs of a job group."""

    def terminate(self) -> bool:
        """Ensures that an unusable driver ends. Returns whether it is known to have run out of memory."""

    def wait(self) -> str:
        """Blocks until the driver has ended. Returns the reason in one line."""

    def close(self) -> None:
        """Ends the driver if it still runs, and releases its resources."""


class Spark(Protocol):
    """Starts drivers, one after another."""

    pause_max_s: float
    """The longest pause between two starts."""

    @property
    def pid(self) -> int | None:
        """The process id of the running or starting driver; None if it is not a child of this process."""

    def prepare(self) -> None:
        """Called before the first start, until it succeeds. EngineUnavailable if a dependency is not installed."""

    def start(self, stopping: threading.Event) -> Driver:
        """Returns when Spark is ready. EngineUnavailable if it cannot be started or `stopping` is set first."""

    def stop(self, grace_s: float) -> None:
        """Asks the running or starting driver to exit; kills it after `grace_s` seconds."""
