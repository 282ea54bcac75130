"""The `$` actions, one function each: `general` ones, and those of `kafka`. `registered` finds them by name."""

from __future__ import annotations

from testdrive.actions import general, kafka
from testdrive.actions.registered import perform

__all__ = ["general", "kafka", "perform"]
