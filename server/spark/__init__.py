"""The engine's door: SQL text and Arrow tables go in, one Arrow table comes out. Nothing else passes.

The way of one statement, with the files that know each step:

    run(sql, views)          engine.py        the door, the engine's life: start, watch, restart, close
      → a free slot          pool.py          statements wait, slots (sessions with a thread) take them
      → a driver             embedded.py      in a JVM of our own (jvm.py: the process, its flags and its class archive;
                                              java.py finds a Java), executors in it or on a cluster
        by a session's path  arrow_path.py    Arrow over a socket to Door.java and back; stock_path.py: the plain way
        or another           remote.py        a Spark Connect server's, wherever it is
        by a session's path  connect_path.py  Arrow over gRPC
      → an error, if any     errors.py        Spark's words become PostgreSQL's

Whoever computes asks an `Engine`; only this package knows that Spark stands behind it. The SQL is Spark's, already
rewritten by the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa


class EngineUnavailable(Exception):
    """The engine cannot be started. `message` says why in one line, `hint` what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} ({hint})")
        self.message = message
        self.hint = hint


class Runner(Protocol):
    """What computes queries. A query is pure: it reads only `views`, and may be run again when its engine dies."""

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False) -> pa.Table:
        """The rows of `sql` over `views` (name -> rows); waits for a starting engine. PgError as PostgreSQL words it.

        57P03 when the engine cannot be had; a `patient` statement waits until it can.

        Cancel safety: cancelling stops the statement's work; nothing remains.
        """


class Engine(Runner, Protocol):
    """What computes, and has a life of its own."""

    @property
    def ready(self) -> bool:
        """Whether a statement would start now rather than wait for the engine's start."""

    @property
    def unavailable(self) -> EngineUnavailable | None:
        """Why statements are refused: the reason that the engine's last starts failed. None when they are not."""

    @property
    def running(self) -> int:
        """How many statements run now."""

    @property
    def waiting(self) -> int:
        """How many statements wait for others to end."""

    @property
    def jvm_pid(self) -> int | None:
        """The process that computes, if it is one on this machine."""

    async def start(self) -> None:
        """Returns when ready. EngineUnavailable when it cannot be for now: it goes on trying, and so may the caller."""

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        """As `Runner.run`; a `background` statement waits until nothing else runs."""

    async def warm_up(self) -> None:
        """Runs synthetic statements, giving way to real ones, until the engine is at its speed."""

    async def close(self) -> None:
        """Ends the engine; statements in flight fail with 57P01."""
