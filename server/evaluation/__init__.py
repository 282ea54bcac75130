"""Work whose cost a client controls, in worker processes that can be stopped.

    `evaluator`       constants: cheap ones are evaluated on the event loop, others by a worker
    `catalog_engine`  queries over system catalogs, which DuckDB runs in a worker (`server.pg_catalog.service`)
    `pool`            the worker processes
    `worker`          the program that they run; `constants` is what it does with a constant
    `messages`        what the server and a worker exchange

Python holds its interpreter lock while it multiplies a string, and DuckDB computes constants while it plans. A thread
would not do: the event loop would stand still, nothing could end the work, and its memory would have no limit. A worker
has one, and is killed when the statement is cancelled, when its client disconnects and after `pool.REQUEST_S_MAX`.
"""
