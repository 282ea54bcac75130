"""The number of examples of property tests, and the seeds of tests that kill processes."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

DEFAULT = 100  # as Hypothesis has it; each run of CI has other examples, so that 12 of them are enough
DEFAULT_PROFILE = "tidewire"

# No deadline: the duration of an example depends on the load of the machine. `timeout` bounds the test as a whole.
settings.register_profile(DEFAULT_PROFILE, deadline=None, max_examples=DEFAULT // 8)
settings.register_profile("fast", deadline=None, max_examples=DEFAULT // 20)
settings.register_profile("nightly", deadline=None, max_examples=DEFAULT)


def examples(count: int, **options: Any) -> settings:
    """Returns settings for a share of `count` examples: 12 %, 5 % with `--hypothesis-profile fast`, or all of them with
    `--hypothesis-profile nightly`.
    """
    return settings(max_examples=max(1, count * settings.default.max_examples // DEFAULT), **options)


def seeds(count: int) -> range:
    """Returns `count` seeds, times TIDEWIRE_EXAMPLES and at least one, from TIDEWIRE_SEED (0) on.

    As parameters of a test, they are in its name, so that a failure shows its seed.
    """
    first, factor = int(os.environ.get("TIDEWIRE_SEED", "0")), float(os.environ.get("TIDEWIRE_EXAMPLES", "1"))
    return range(first, first + max(1, int(count * factor)))
