"""Apache Flink: queries of Nexmark over files of events. Prints [query, seconds, processor seconds] as JSON.

Arguments: the directory of the files, and the queries. Runs in a Python that has apache-flink.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from nexmark_queries import COLUMNS, FLINK, SIDE_COLUMNS, SIDE_INPUT
from pyflink.table import EnvironmentSettings, Schema, Table, TableDescriptor, TableEnvironment

SETTINGS = {
    "parallelism.default": "2",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
    "table.local-time-zone": "UTC",
}
TYPES = {"varchar": "STRING", "bigint": "BIGINT"}
TIMED = "row_time AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR row_time AS row_time - INTERVAL '4' SECOND"


def environment(directory: Path, settings: EnvironmentSettings) -> TableEnvironment:
    """An environment that has the files as tables."""
    found = TableEnvironment.create(settings)
    for name, value in SETTINGS.items():
        found.get_config().set(name, value)
    for table, columns in {**COLUMNS, SIDE_INPUT: SIDE_COLUMNS}.items():
        pairs = (column.split() for column in columns.split(", "))
        typed = ", ".join(f"`{name}` {TYPES[type]}" for name, type in pairs)
        path = (directory / f"{table}.csv").resolve()
        source = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv'"
        found.execute_sql(f"CREATE TABLE {table} ({typed}) WITH ({source})")
        if table == "bid":
            found.execute_sql(f"CREATE TABLE timed_bid ({typed}, {TIMED}) WITH ({source})")
    return found


def used_s() -> float:
    """Processor seconds of this process and its JVM."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ticks = 0
    for pid in ("self", *children):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def execute(inputs: TableEnvironment, result: Table) -> None:
    """Computes the result and discards it."""
    schema = result.get_schema()
    builder = Schema.new_builder()
    for name, type in zip(schema.get_field_names(), schema.get_field_data_types(), strict=True):
        builder.column(name, type)
    sink = TableDescriptor.for_connector("blackhole").schema(builder.build()).build()
    inputs.create_temporary_table("sink", sink)
    result.execute_insert("sink").wait()


def main(directory: Path, names: list[str]) -> None:
    for name in names:
        for _ in range(2):  # the JVM compiles most of the query's code during the first run
            inputs = environment(directory, EnvironmentSettings.in_streaming_mode())
            result = inputs.sql_query(FLINK[name])
            begun, before = time.monotonic(), used_s()
            execute(inputs, result)
        print(json.dumps([name, time.monotonic() - begun, used_s() - before]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
