"""Creates the operators of a delta plan."""

from __future__ import annotations

from server.dataflow.join_operator import JoinOperator
from server.dataflow.nodes import (
    Concat,
    Constant,
    InnerJoin,
    Linear,
    Node,
    Once,
    Recompute,
    Source,
    Temporal,
    Totals,
    nodes_of,
)
from server.dataflow.once_operator import OnceOperator
from server.dataflow.operator import (
    Operator,
    Place,
)
from server.dataflow.recompute_operator import RecomputeOperator
from server.dataflow.row_operators import (
    ConcatOperator,
    ConstantOperator,
    LinearOperator,
    SourceOperator,
    TemporalOperator,
)
from server.dataflow.totals_operator import TotalsOperator


def operators_of(root: Node, place: Place) -> list[Operator]:
    """One operator without state per node, inputs before their readers. The caller closes them."""
    made: list[Operator] = []
    for node in nodes_of(root):
        match node:
            case Source():
                made.append(SourceOperator(node, place))
            case Constant():
                made.append(ConstantOperator(node, place))
            case Linear():
                made.append(LinearOperator(node, place))
            case Temporal():
                made.append(TemporalOperator(node, place))
            case Concat():
                made.append(ConcatOperator(node, place))
            case Once():
                made.append(OnceOperator(node, place))
            case InnerJoin():
                made.append(JoinOperator(node, place))
            case Totals():
                made.append(TotalsOperator(node, place))
            case Recompute():
                made.append(RecomputeOperator(node, place))
            case _:
                raise AssertionError(node)
    return made
