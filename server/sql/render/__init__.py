"""Relational nodes to Spark SQL text.

Each node becomes a block of SELECT; clauses of several nodes share one as long as their order allows (`block.Stage`),
and where it does not the block becomes a subquery of the next. Columns are called x<id>, unique in the whole statement,
so no qualifier is ever needed, also from inside a correlated subquery; the outermost are c0, c1, ...

A rendered expression has exactly the Spark type of its PostgreSQL type (`spark_types`), a numeric DECIMAL(precision,
scale) of the expression's own precision. Names TIMESTAMP_LTZ and TIMESTAMP_NTZ are used, never TIMESTAMP.

    `relations`    nodes to blocks (`block`); `Renderer` writes a plan
    `expressions`  what stands in their clauses; `calls`, `literals`, `spark_types`
"""

from __future__ import annotations

from server.sql.expressions import Literal, Parameter, SessionValue
from server.sql.relations import Relation
from server.sql.render.literals import literal_text
from server.sql.render.relations import Renderer

__all__ = ["Renderer", "spark_text", "unbound"]


def unbound(expression: Parameter | SessionValue) -> str:
    """How a value that is only known at execution is written in a plan's fingerprint."""
    if isinstance(expression, Parameter):
        return f"${expression.index + 1}"
    argument = expression.argument
    return f"{expression.name}({literal_text(argument) if isinstance(argument, Literal) else argument or ''})"


def spark_text(relation: Relation) -> str:
    """The statement for a relation in which nothing is left to bind."""
    return Renderer(relation, unbound).text()
