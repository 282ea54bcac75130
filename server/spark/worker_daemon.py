"""The daemon that forks Spark's Python workers, with the modules that the registered functions need already imported.

A worker that imports them itself takes 0.6 s of processor time before its first row, and shares no memory with others.
Spark starts it as `python -m server.spark.worker_daemon pyspark.worker`; see `python_functions.DAEMON`.

PySpark's own daemon imports nothing before it forks, because libraries may start threads, which a fork does not copy.
OpenBLAS and jemalloc, which numpy and pyarrow contain, start some and have handlers for forks (decision 084).
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterable

from pyspark.daemon import manager

from server.spark.python_functions import MODULES


def import_modules(names: Iterable[str]) -> None:
    """Imports modules and excludes them from garbage collection."""
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import_modules([*sys.argv[1:], *os.environ.get(MODULES, "").split()])
    manager()
