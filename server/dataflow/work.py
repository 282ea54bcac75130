"""What an operator did: rows, time and statements. A few numbers a step, nothing a row."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Work:
    """Of one step, or of several. `seconds` are from a step's start to its end, `spark_s` those of its statements."""

    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    statements: int = 0
    spark_s: float = 0.0

    def add(self, other: Work) -> None:
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.seconds += other.seconds
        self.statements += other.statements
        self.spark_s += other.spark_s


@dataclass(slots=True)
class Record:
    """An operator's work since its dataflow began: when its state was last made, and in the ticks from then on.

    `step` is under way; only that of a tick that works is kept. `hydration` None: it has not got so far.
    """

    step: Work = field(default_factory=Work)
    hydration: Work | None = None
    ticks: int = 0
    last: Work = field(default_factory=Work)
    total: Work = field(default_factory=Work)

    def hydrated(self) -> None:
        """The step made the state; that counts at once, so that it is seen while others are at it."""
        self.hydration, self.step = self.step, Work()

    def keep(self) -> None:
        """The tick worked."""
        self.ticks += 1
        self.last, self.step = self.step, Work()
        self.total.add(self.last)

    def forget(self) -> None:
        self.step = Work()

    def follow(self, before: Record) -> None:
        """The operator takes the place of one whose state was made anew."""
        self.ticks, self.last, self.total = before.ticks, before.last, before.total
