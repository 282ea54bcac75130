"""The number of examples of the property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

DEFAULT = 100  # as Hypothesis has it
DEFAULT_PROFILE = "tidewire"

# No deadline: the duration of an example depends on the load of the machine. `timeout` bounds the test as a whole.
settings.register_profile(DEFAULT_PROFILE, deadline=None, max_examples=DEFAULT)
settings.register_profile("fast", deadline=None, max_examples=DEFAULT // 20)


def examples(count: int, **options: Any) -> settings:
    """Returns settings for `count` examples, or for a twentieth of them with `--hypothesis-profile fast`."""
    return settings(max_examples=max(1, count * settings.default.max_examples // DEFAULT), **options)
