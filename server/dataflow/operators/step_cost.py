"""A cost model that decides when a step is more work than computing all rows."""

from __future__ import annotations

FEW_ROWS = 100_000  # the least limit of a step's cost: so many rows cost no more than a few empty Spark jobs


class TooMuch(Exception):
    """The step is more work than computing all rows."""


class StepCost:
    """The cost of one dataflow's statements. The unit is the cost of reading one row when all rows are computed.

    A step looks up the rows of the touched keys, computes them before and after the change and stores the new state.
    So a row costs several units in a step, and a step that touches many keys is more work than computing all rows.
    This is detected as early as possible, by three estimates:
    - before the changes are read: their number times the cost of a change, as of the last large step, or of the last
      full computation if there was none (`begin`);
    - before rows are looked up: the number of entries with the touched keys (`expect`);
    - before a statement runs: the number of rows that it reads (`add`).
    """

    def __init__(self, reads_per_row: float = 1.0) -> None:
        """`reads_per_row`: how often a full computation reads a row of the inputs, until one has measured it."""
        self._whole = 0  # rows that statements read in the last full computation, or would read in one now
        self._reads_per_row = reads_per_row
        self._rows = 0
        self._cost = 0.0
        self._followed = 0.0  # the cost if each row that was read had been a change
        self._limit: int | None = None
        self._changes = 0
        self._a_change = 1.0  # the estimated cost of one change
        self._is_learned = False  # from a large step

    def begin(self, changes: int = 0, *, limited: bool = False) -> None:
        """Begins a step with this number of changes. TooMuch if it is `limited` and its estimate exceeds the limit."""
        self._rows, self._cost, self._followed, self._changes = 0, 0.0, 0.0, changes
        self._limit = max(FEW_ROWS, self._whole) if limited else None
        if limited and self.refuses(changes):
            raise TooMuch

    def refuses(self, changes: int) -> bool:
        """Whether `begin` refuses a limited step with this number of changes."""
        return changes * self._a_change > max(FEW_ROWS, self._whole)

    def expect(self, rows: int, cost: float) -> None:
        """Announces that a statement will read at least `rows` rows, before they are looked up. TooMuch as in `add`.

        Adds nothing to the cost: `add` follows.
        """
        if self._limit is not None and self._cost + rows * cost > self._limit:
            self._learn(self._cost + rows * cost)
            raise TooMuch

    def add(self, rows: int, cost: float, rows_per_change: float = 1.0) -> None:
        """Adds a statement that reads `rows` rows at `cost` each. TooMuch if the step's cost exceeds its limit.

        `rows_per_change`: the number of rows that a step recomputes for one changed row.
        """
        self.expect(rows, cost)
        self._rows += rows
        self._cost += rows * cost
        self._followed += rows * cost * rows_per_change

    def end(self, *, whole: int | None = None) -> None:
        """The step succeeded. `whole`: it computed all rows, from this number of rows of the inputs."""
        if whole:
            self._whole = self._rows
            self._reads_per_row = max(self._rows / whole, 1.0)
            if not self._is_learned:
                self._a_change = self._followed / whole
        elif self._cost > FEW_ROWS:
            self._learn(self._cost)

    def recomputed(self, rows: int) -> None:
        """All rows were computed without the step's statements, from this number of rows of the inputs.

        A full computation with them would read more rows than the last one if the inputs have grown.
        """
        self._whole = max(self._whole, int(rows * self._reads_per_row))

    def _learn(self, cost: float) -> None:
        self._a_change, self._is_learned = cost / max(self._changes, 1), True
