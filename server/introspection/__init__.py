"""Information about the server: the rows of the system tables, metrics, and the HTTP port.

`system_tables`  the rows of all system tables; `dataflow_tables`, `source_tables`, `sink_tables`: those of these kinds
`metrics`        the metrics that are computed when they are read, and the text of /metrics
`http`           the HTTP port; `pages`: its pages; `http_access`: who may read them; `tls_transport`: HTTPS
"""
