"""The values of constant expressions.

    `evaluator`  cheap constants are evaluated on the event loop, others by a worker process
    `constants`  the service of these workers

See `server.workers` for the reasons.
"""
