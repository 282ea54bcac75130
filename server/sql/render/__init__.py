"""Rendering of relational nodes to Spark SQL text.

A SELECT block holds the clauses of one or more nodes: a node's clause is added to the block of its input if the order
of clauses allows it (`block.Stage`). Otherwise the block becomes a subquery of a new one. Column names are x<id>. They
are unique in the whole statement, so columns need no qualifier, even in a correlated subquery. The output columns are
named c0, c1, ...

A rendered expression has exactly the Spark type of its PostgreSQL type (`spark_types`). A numeric is
DECIMAL(precision, scale) with the expression's own precision. The type names TIMESTAMP_LTZ and TIMESTAMP_NTZ are used,
never TIMESTAMP, whose meaning depends on Spark's configuration.

    `relations`    renders nodes to blocks (`block`); `Renderer` renders a plan
    `expressions`  renders the expressions in clauses, using `calls`, `literals` and `spark_types`. A value that an
                   expression of a SELECT uses several times becomes a column of a subquery (`shared_values`)
"""

from __future__ import annotations

from server.sql.expressions import Literal, Parameter, SessionValue
from server.sql.relations import Relation
from server.sql.render.literals import literal_text
from server.sql.render.relations import Renderer

__all__ = ["Renderer", "spark_text", "unbound"]


def unbound(expression: Parameter | SessionValue) -> str:
    """The placeholder, in a plan's template and fingerprint, for a value that is only known at execution."""
    if isinstance(expression, Parameter):
        return f"${expression.index + 1}"
    argument = expression.argument
    return f"{expression.name}({literal_text(argument) if isinstance(argument, Literal) else argument or ''})"


def spark_text(relation: Relation) -> str:
    """The Spark SQL of a relation, with placeholders for parameters and session values."""
    return Renderer(relation, unbound).text()
