"""Tools for tasks, threads, metrics, logs and errors. They depend on no other package of the server."""
