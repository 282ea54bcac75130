"""Evaluation of constant expressions whose cost a client controls, in processes that can be stopped.

    Evaluator.evaluate     the server's side: evaluates cheap constants itself, sends others to a worker process
    worker                 the process: evaluates one request after the other within a memory limit
    messages               what the two exchange over the process's pipes

Python holds its interpreter lock while it multiplies a string or matches a regular expression, so a thread would not
do: the event loop would stand still, and nothing could end the evaluation. A worker is killed when the statement is
cancelled, when its client disconnects and after EVALUATION_S_MAX.
"""

from server.evaluation.evaluator import Evaluator

__all__ = ["Evaluator"]
