"""The requests of a worker for constants."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

from server.sql import functions as _functions  # noqa: F401  functions and temporal register their functions
from server.sql import temporal as _temporal  # noqa: F401
from server.sql.constant import Bindings, compiled
from server.sql.relations import Relation
from server.workers.messages import Call, arrow_stream


def serve(request: bytes, call: Call) -> bytes:
    """Returns the rows of a pickled (relation, bindings) as an Arrow stream."""
    relation: Relation
    bindings: Bindings
    relation, bindings = pickle.loads(request)
    constant = compiled(relation, bounded=False)
    assert constant is not None
    batch = constant.evaluate(
        bindings._replace(
            signal=partial(call, "signal"),
            fact=partial(call, "fact"),
            privilege_function=partial(call, "privilege_function"),
            sequence=partial(call, "sequence"),
        )
    )
    return arrow_stream(batch)


def service() -> Callable[[bytes, Call], bytes]:
    """The service of a worker for constants."""
    return serve
