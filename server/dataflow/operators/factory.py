"""Creates the operators of a delta plan."""

from __future__ import annotations

from server.dataflow.operators.accumulable_aggregate import AccumulableAggregateOperator
from server.dataflow.operators.distinct import DistinctOperator
from server.dataflow.operators.distinct_values import DistinctValuesOperator
from server.dataflow.operators.join import JoinOperator
from server.dataflow.operators.linear import (
    ConcatOperator,
    ConstantOperator,
    LinearOperator,
    SourceOperator,
    TemporalOperator,
)
from server.dataflow.operators.operator import Operator, OperatorContext
from server.dataflow.operators.recompute import RecomputeOperator
from server.dataflow.plan.nodes import (
    AccumulableAggregate,
    Concat,
    Constant,
    DistinctRows,
    DistinctValues,
    InnerJoin,
    Linear,
    Node,
    Recompute,
    Source,
    Temporal,
    nodes_of,
)


def operators_of(root: Node, context: OperatorContext) -> list[Operator]:
    """One operator without state per node, inputs before their readers. The caller closes them."""
    operators: list[Operator] = []
    nodes = nodes_of(root)
    needing = {id(read) for node in nodes if not isinstance(node, Linear | InnerJoin) for read in node.inputs}
    for node in nodes:
        match node:
            case Source():
                merges = node is root or id(node) in needing
                operators.append(SourceOperator(node, context, merges=merges))
            case Constant():
                operators.append(ConstantOperator(node, context))
            case Linear():
                operators.append(LinearOperator(node, context))
            case Temporal():
                operators.append(TemporalOperator(node, context))
            case Concat():
                operators.append(ConcatOperator(node, context))
            case DistinctRows():
                operators.append(DistinctOperator(node, context))
            case DistinctValues():
                operators.append(DistinctValuesOperator(node, context))
            case InnerJoin():
                operators.append(JoinOperator(node, context))
            case AccumulableAggregate():
                operators.append(AccumulableAggregateOperator(node, context))
            case Recompute():
                operators.append(RecomputeOperator(node, context))
            case _:
                raise AssertionError(node)
    return operators
