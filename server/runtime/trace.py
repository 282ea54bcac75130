"""The steps of a statement and their durations, for EXPLAIN ANALYZE. Steps are recorded only inside `recorded`.

with recorded() as steps:              # includes the steps of tasks that are created inside
    ...
        with step("read", id) as it:   # in the code that does the work
            it.rows = ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic


@dataclass(slots=True)
class Step:
    """`of`: the object of the step. `parts`: seconds by activity, as far as `add_durations` reported them."""

    what: str
    of: str = ""
    rows: int = 0
    bytes: int | None = None
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


_steps: ContextVar[list[Step] | None] = ContextVar("steps", default=None)
_current: ContextVar[Step | None] = ContextVar("current", default=None)


@contextmanager
def recorded() -> Iterator[list[Step]]:
    """Records the steps inside, in the order in which they end."""
    steps: list[Step] = []
    token = _steps.set(steps)
    try:
        yield steps
    finally:
        _steps.reset(token)


class _Unrecorded:
    """The context of a step outside `recorded`. Nobody reads what is written to its step."""

    def __init__(self) -> None:
        self._step = Step("")

    def __enter__(self) -> Step:
        return self._step

    def __exit__(self, *_: object) -> None:
        pass


_unrecorded = _Unrecorded()


def step(what: str, of: str = "") -> AbstractContextManager[Step]:
    """Measures a step of the current statement."""
    return _unrecorded if _steps.get() is None else _recorded_step(what, of)


@contextmanager
def _recorded_step(what: str, of: str) -> Iterator[Step]:
    made = Step(what, of)
    token = _current.set(made)
    begun = monotonic()
    try:
        yield made
    finally:
        made.seconds = monotonic() - begun
        _current.reset(token)
        if (steps := _steps.get()) is not None:
            steps.append(made)


def add_durations(parts: Mapping[str, float]) -> None:
    """Adds durations of activities, in seconds, to the current step."""
    if (current := _current.get()) is not None:
        current.parts.update(parts)
