"""Per-operator counters of rows, time and statements. Updated once per step, never per row."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Work:
    """Counters of one or several steps. `seconds`: wall time of the steps; `spark_s`: of their Spark statements."""

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
    """An operator's work: in the last hydration, in the last step and in all steps since the dataflow started.

    `current`: the step in progress, discarded if the dataflow's step fails. `hydration`: None until it has ended.
    """

    current: Work = field(default_factory=Work)
    hydration: Work | None = None
    steps: int = 0
    last: Work = field(default_factory=Work)
    total: Work = field(default_factory=Work)

    def hydrated(self) -> None:
        """Records the step as the hydration, at once: it is visible while other operators still hydrate."""
        self.hydration, self.current = self.current, Work()

    def commit(self) -> None:
        """The dataflow's step succeeded: records the step."""
        self.steps += 1
        self.last, self.current = self.current, Work()
        self.total.add(self.last)

    def roll_back(self) -> None:
        """The dataflow's step failed: discards the step."""
        self.current = Work()

    def take_over(self, before: Record) -> None:
        """Continues with the counters of the operator that this one replaces after another hydration."""
        self.steps, self.last, self.total = before.steps, before.last, before.total
