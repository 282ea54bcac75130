"""A Spark driver in a JVM that this process starts.

- `java_runtime` finds Java, `jvm` starts it as a child process, `local_cluster` prepares executors in other processes,
  and `driver` opens sessions.
- A session exchanges tables by `bridge_path`, through the `bridge` (Java compiled in the JVM, whose connections
  `token_listener` accepts), or by `stock_path`, through PySpark. `python_udfs` registers Python functions.
"""
