"""The demo is a program of its own, whose files import each other by name: they are found where they lie."""

from __future__ import annotations

import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "demo"

sys.path.append(str(DEMO))
