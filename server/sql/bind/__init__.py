"""sqlglot's query trees to relations and typed expressions, by PostgreSQL's rules (parse_clause.c, parse_expr.c, ...).

    `binder`   one statement's `binder.Binder`; its doors (query, expression) find what binds a tree

    queries    `select`, whose clauses are bound in PostgreSQL's order:
                 `common_tables`  WITH
                 `from_clause`    FROM: `from_item`, `joins`, `tables`, `table_functions`, `values`
                 `select_list`    the items, `output_names` without AS
                 `grouping_sets`  GROUP BY, and `grouping`: the other clauses over its rows
                 `windows`        OVER and WINDOW; `frames`
                 `distinct`, `order`, `limits`; `terms` are what they and GROUP BY go by
               `set_operations`, over `outputs`
    leaves     `names`, `literals`, `session`
    operators  `operators`, `connectives`, `predicates`, `row_values`, `quantified`, `subqueries`
    values     `conditionals`, `arrays`, `casts`
    functions  `functions`, `grammar`, `aggregates`; `calls` chooses among the rows of the function table
    all        `shapes`, what a tree shows unbound; `keys`, what may be sorted and grouped by

What they do not know they refuse by name (0A000). Views and common table expressions are bound anew wherever they are
named, so every column of the plan has an id of its own.
"""

from importlib import import_module

from server.sql.bind.binder import Binder, PlanContext, Replacement
from server.sql.bind.from_clause import other_tables
from server.sql.bind.output_names import output_name
from server.sql.bind.outputs import assigned
from server.sql.bind.select_list import Item, returning_items
from server.sql.bind.tables import relation_of
from server.sql.bind.values import values

__all__ = [
    "Binder",
    "Item",
    "PlanContext",
    "Replacement",
    "assigned",
    "other_tables",
    "output_name",
    "relation_of",
    "returning_items",
    "values",
]

for _module in (
    *("select", "set_operations", "values", "names", "literals", "session", "operators", "connectives", "predicates"),
    *("subqueries", "conditionals", "arrays", "casts", "functions", "grammar", "windows"),
):  # each registers the forms that it binds
    import_module(f"{__name__}.{_module}")
