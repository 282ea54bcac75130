"""The Spark engine: evaluates Spark SQL over Arrow tables and returns an Arrow table.

How a statement is executed:

    run(sql, views)          engine.py        lifecycle: start, watch, restart, close
      → a free slot          pool.py          queue of statements; a slot is a Spark session with a thread
      → a driver             driver.py        interface; embedded/: in a JVM that this process starts, with executors in
                                              it or on a cluster; connect/: a Spark Connect server
      → a session            session_path.py  interface; embedded/bridge_path.py: Arrow over a socket to
                                              java/SparkBridge.java; embedded/stock_path.py: PySpark's public API;
                                              connect/path.py: Arrow over gRPC
      → Arrow types          arrow_types.py   converts tables to Spark's Arrow layout and back
      → an error             errors.py        translates Spark's errors to PostgreSQL's

`measured_engine` counts the statements, `warm_up` runs some so that the JVM compiles its code, `python_functions`
pickles the functions that SQL calls by name, `worker_daemon` forks the workers that run them, and `installation` finds
pyspark.

`.importlinter` states these layers as contracts. embedded/ and connect/ do not import each other.

The other packages depend on the protocol `Engine` only; Spark is used only in this package. The SQL is in Spark's
dialect, as rendered by the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa  # not at run time: the command line imports this module before it sets the allocator


class EngineUnavailable(Exception):
    """The engine cannot be started. `message` is the reason in one line, `hint` a remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} ({hint})")
        self.message = message
        self.hint = hint


class Runner(Protocol):
    """Runs queries. A query is pure: it reads only `views`, so it may run again if the engine fails."""

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        """Returns the rows of `sql` over `views` (name -> rows). Waits for an engine that is starting.

        A `patient` statement belongs to a dataflow: it waits for an engine, and its plan is kept for the next run.
        PgError with PostgreSQL's SQLSTATE and message; 57P03 if the engine is unavailable.

        Cancel safety: cancellation stops the statement and leaves nothing behind.
        """


class Engine(Runner, Protocol):
    """A `Runner` with a lifecycle."""

    @property
    def ready(self) -> bool:
        """Whether the engine is started, so that statements do not wait for its start."""

    @property
    def unavailable(self) -> EngineUnavailable | None:
        """The reason of the last failed start while statements are refused; None while they are accepted."""

    @property
    def running(self) -> int:
        """The number of running statements."""

    @property
    def waiting(self) -> int:
        """The number of queued statements."""

    @property
    def jvm_pid(self) -> int | None:
        """The process id of the driver's JVM; None if this process did not start it."""

    async def start(self) -> None:
        """Returns when the engine is ready. EngineUnavailable if it cannot be started for now.

        The engine keeps trying after that; `start` may be called again.
        """

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        """As `Runner.run`. A `background` statement starts only when no other statement runs."""

    async def warm_up(self) -> None:
        """Runs synthetic background statements so that the JVM compiles the code that small statements use.

        It pauses while other statements run.
        """

    async def close(self) -> None:
        """Stops the engine. Statements that have not finished fail with 57P01."""
