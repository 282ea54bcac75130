"""Makes the demo's modules importable: they import each other by their bare names, as a program's modules do."""

from __future__ import annotations

import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "demo"

sys.path.append(str(DEMO))
