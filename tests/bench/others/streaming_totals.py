"""Spark Structured Streaming: sum and count by key, its state in RocksDB. A batch's seconds are Spark's own figure."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

SETTINGS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def main(base: Path, directory: Path) -> None:
    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    incoming = directory / "incoming"
    incoming.mkdir()
    changes = spark.readStream.schema("k int, v int, diff bigint").parquet(str(incoming))
    query = (
        changes.groupBy("k")
        .agg(expr("sum(v * diff)"), expr("sum(diff)"))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    batch_s(query, base, incoming)
    print("ready", flush=True)
    for line in sys.stdin:
        print(batch_s(query, Path(line.strip()), incoming), flush=True)
    query.stop()
    spark.stop()


def batch_s(query: StreamingQuery, file: Path, incoming: Path) -> float:
    """Lets the query find a file; the seconds of the batch that takes it in."""
    rows = _taken(query)
    file.rename(incoming / file.name)
    query.processAllAvailable()
    while _taken(query) == rows:  # its figures come a little after its rows
        query.awaitTermination(0.01)
    progress = next(p for p in reversed(query.recentProgress) if p["numInputRows"])
    return float(progress["durationMs"]["triggerExecution"]) / 1e3


def _taken(query: StreamingQuery) -> int:
    """The last batch that had rows."""
    return max((p["batchId"] for p in query.recentProgress if p["numInputRows"]), default=-1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
