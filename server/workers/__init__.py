"""Worker processes, for work that would block the event loop, or could not be stopped in a thread.

    `pool`         the server's side: starts processes on demand, and kills them
    `fork_server`  the process from which all of them are forked, as the server sees it
    `forker`       what runs in that process
    `worker`       what runs in a worker: it answers the requests of one service
    `messages`     the messages between the server and a worker

A service is a function that answers requests. `server.evaluation`, `server.pg_catalog` and `server.ingest` have one.

Threads would not be sufficient. Python holds its interpreter lock while it multiplies a string or decodes messages one
by one, and DuckDB evaluates constants while it plans: the event loop would wait, the work could not be stopped, and its
memory would not be limited. A worker has a memory limit. It is killed when its request is cancelled, and after
`pool.REQUEST_S_MAX`.

Requests for constants and catalogs take turns: if others wait, a request that has run for `pool.TURN_S` is stopped and
run again by a worker for such requests. A few expensive statements thus do not delay the many that are cheap.
"""
