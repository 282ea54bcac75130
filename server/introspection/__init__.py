"""Information about the server: the rows of the system tables, and metrics.

`system_tables`  the rows of all system tables; `dataflow_tables`, `source_tables`, `sink_tables`: those of these kinds
`metrics`        the metrics that are computed when they are read, and the text of /metrics
"""
