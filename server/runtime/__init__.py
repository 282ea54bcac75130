"""Tools for tasks, threads, metrics, logs and errors. Only `offload` uses another package of the server, `sql`.

`threads`, `cancellation`, `shutdown`  threads and tasks; `offload`: parsing and planning of long texts in threads;
                                       `parallel`: work on parts in as many threads as there are processors
`memory`, `allocator`, `freed_memory`  a limit on memory, the settings of Arrow's allocator, and the return of memory
`tls_stream`                           TLS between bytes and bytes
`hidden_pandas`, `recursion`           processes without pandas, and with deep recursion
`limited_log`                          the log of what clients do before their login
`metrics`, `trace`, `logs`, `errors`   counters, the steps of EXPLAIN ANALYZE, the log, errors for clients
"""
