"""Limits of the processor time and memory that an input may take."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tests.fuzz.mutations import SEED

MIB = 1 << 20


class Limits:
    """Runs the inputs of one test. A failed one is named with the seed.

    `seconds_max`: processor time of this thread per input. Python code that exceeds it by a second is interrupted.
    """

    def __init__(self, seconds_max: float) -> None:
        self.seconds_max = seconds_max
        self.inputs = 0
        self.slowest_s = 0.0

    @contextlib.contextmanager
    def of(self, case: object) -> Iterator[None]:
        """One input. AssertionError that contains `case` if the block raises or takes too long."""
        self.inputs += 1
        signal.setitimer(signal.ITIMER_VIRTUAL, self.seconds_max + 1)
        begun = time.thread_time()
        try:
            yield
            taken = time.thread_time() - begun
            assert taken < self.seconds_max, f"it took {taken:.2f} s"
        except Exception as error:
            raise AssertionError(f"FUZZ_SEED={SEED}, input {self.inputs}: {error!r}: {case!r:.20000}") from error
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.slowest_s = max(self.slowest_s, taken)


@contextlib.contextmanager
def limited(*, seconds_max: float, growth_bytes_max: int = 128 * MIB) -> Iterator[Limits]:
    """Also limits the resident memory: at no time may it exceed what it was before by more than `growth_bytes_max`.

    Prints the number of inputs, how many there were per second, the slowest one, and the growth.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError("it was interrupted")

    Path("/proc/self/clear_refs").write_text("5")  # VmHWM becomes VmRSS
    before_bytes = _peak_bytes()
    limits = Limits(seconds_max)
    previous = signal.signal(signal.SIGVTALRM, interrupt)
    begun = time.thread_time()
    try:
        yield limits
    finally:
        signal.signal(signal.SIGVTALRM, previous)
    taken = time.thread_time() - begun
    growth_bytes = _peak_bytes() - before_bytes
    print(
        f"\n{limits.inputs:,} inputs in {taken:.1f} s of processor time, "
        f"the slowest in {limits.slowest_s * 1e3:.1f} ms, memory grew by {growth_bytes / MIB:.0f} MiB"
    )
    assert growth_bytes < growth_bytes_max, f"FUZZ_SEED={SEED}: memory grew by {growth_bytes / MIB:.0f} MiB"


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError
