"""The daemon that forks Spark's Python workers, with the modules that the registered functions need already imported.

A worker that imports them itself takes 0.6 s of processor time before its first row, and shares no memory with others.
Spark starts it as `python -m server.spark.worker_daemon pyspark.worker`; see `python_functions.DAEMON`.

PySpark's own daemon imports nothing before it forks, because libraries may start threads, which a fork does not copy.
Those that numpy, pyarrow and jemalloc start when they are imported are restarted in the child by their own handlers.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark.daemon import manager

from server.spark.python_functions import MODULES

# What pyspark.worker imports when it gets its first task.
_PYSPARK = ("pyspark.worker", "pyspark.sql.types", "pyspark.sql.pandas.serializers", "pyspark.sql.conversion")


def import_modules(names: str) -> None:
    """Imports modules, whose names are separated by spaces, and excludes them from garbage collection."""
    for name in (*_PYSPARK, *names.split()):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import_modules(os.environ.get(MODULES, ""))
    manager()
