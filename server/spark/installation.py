"""The installed pyspark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from server.spark import EngineUnavailable


def spark_home() -> Path:
    """Returns pyspark's directory without importing it. EngineUnavailable if pyspark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineUnavailable("pyspark is not installed", "run: pip install tidewire")
    return Path(spec.origin).parent
