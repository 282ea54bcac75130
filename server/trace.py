"""What a statement took, step by step, for EXPLAIN ANALYZE. Nothing is kept where nobody asked.

with recorded() as steps:              # who asks; steps of tasks that begin inside are among them
    ...
        with step("read", id) as it:   # who works
            it.rows = ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic


@dataclass(slots=True)
class Step:
    """`of`: what it was done to. `parts`: seconds by what they were spent on, as far as somebody told."""

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
    """The steps that are made inside, in the order in which they end."""
    steps: list[Step] = []
    token = _steps.set(steps)
    try:
        yield steps
    finally:
        _steps.reset(token)


@contextmanager
def step(what: str, of: str = "") -> Iterator[Step]:
    """A step of the statement that runs."""
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


def tell(parts: Mapping[str, float]) -> None:
    """What the step that runs spent its time on."""
    if (current := _current.get()) is not None:
        current.parts.update(parts)
