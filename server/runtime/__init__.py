"""Tools for tasks, threads, counters and errors. They depend on no other package of the server."""
