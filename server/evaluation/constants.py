"""The requests of a worker for constants."""

from __future__ import annotations

import pickle
from functools import partial

import pyarrow as pa

from server.evaluation.messages import Call
from server.sql import functions as _functions  # noqa: F401  functions and temporal register their functions
from server.sql import temporal as _temporal  # noqa: F401
from server.sql.constant import Bindings, compiled
from server.sql.relations import Relation


def serve(request: bytes, call: Call) -> bytes:
    """Returns the rows of a pickled (relation, bindings) as an Arrow stream."""
    relation: Relation
    bindings: Bindings
    relation, bindings = pickle.loads(request)
    constant = compiled(relation, bounded=False)
    assert constant is not None
    batch = constant.evaluate(bindings._replace(signal=partial(call, "signal"), inquire=partial(call, "inquire")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
