"""Work whose cost a client controls, run in worker processes that can be stopped.

    `evaluator`  constants: cheap ones are evaluated on the event loop, others by a worker
    `pool`       the worker processes
    `worker`     the program that they run, with `constants` or `server.pg_catalog.service`, which runs catalog queries
    `messages`   the messages between the server and a worker

Threads would not be sufficient. Python holds its interpreter lock while it multiplies a string, and DuckDB evaluates
constants while it plans: the event loop would be blocked, the work could not be stopped, and its memory would not be
limited. A worker has a memory limit. It is killed when the statement is cancelled, when its client disconnects, and
after `pool.REQUEST_S_MAX`.
"""
