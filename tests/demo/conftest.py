"""Makes the modules of the demo importable. They import each other by their plain names."""

from __future__ import annotations

import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "demo"

sys.path.append(str(DEMO))
