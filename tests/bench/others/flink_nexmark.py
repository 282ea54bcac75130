"""Apache Flink: queries of Nexmark over files of events. Prints [query, seconds] as JSON, one line per query.

Arguments: the directory of the files, and the queries. Runs in a Python that has apache-flink.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nexmark_queries import COLUMNS, QUERIES
from pyflink.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment

SETTINGS = {
    "parallelism.default": "2",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
}
TYPES = {"varchar": "STRING", "bigint": "BIGINT"}


def seconds(directory: Path, query: str) -> float:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        environment.get_config().set(name, value)
    for table, columns in COLUMNS.items():
        pairs = (column.split() for column in columns.split(", "))
        typed = ", ".join(f"`{name}` {TYPES[type]}" for name, type in pairs)
        path = (directory / f"{table}.csv").resolve()
        source = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv'"
        environment.execute_sql(f"CREATE TABLE {table} ({typed}) WITH ({source})")
    result = environment.sql_query(query)
    schema = result.get_schema()
    builder = Schema.new_builder()
    for name, type in zip(schema.get_field_names(), schema.get_field_data_types(), strict=True):
        builder.column(name, type)
    sink = TableDescriptor.for_connector("blackhole").schema(builder.build()).build()
    environment.create_temporary_table("sink", sink)
    begun = time.monotonic()
    result.execute_insert("sink").wait()
    return time.monotonic() - begun


def main(directory: Path, names: list[str]) -> None:
    for name in names:
        print(json.dumps([name, seconds(directory, QUERIES[name])]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
