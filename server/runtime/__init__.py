"""Tools for tasks, threads, metrics and errors. They depend on no other package of the server."""
