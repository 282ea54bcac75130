"""The `$` actions, one function each."""

from __future__ import annotations

from testdrive.actions import general, kafka
from testdrive.actions.registered import perform

__all__ = ["general", "kafka", "perform"]
