"""Binds sqlglot's query trees: resolves names and types by PostgreSQL's rules (parse_clause.c, parse_expr.c, ...).

    `binder`   `binder.Binder` binds one statement; its methods query and expression dispatch on the class of a tree

    queries    `select`, which binds its clauses in PostgreSQL's order:
                 `common_tables`  WITH; `paths`, its SEARCH and CYCLE
                 `from_clause`    FROM: `from_item`, `joins`, `tables`, `table_functions`, `values`
                 `select_list`    the items; `output_names` names those without AS
                 `grouping_sets`  GROUP BY; `grouping` rewrites the other clauses over its rows
                 `windows`        OVER and WINDOW; `frames`, `exclusions`
                 `distinct`, `order`, `limits`; `terms` binds the terms of these clauses and of GROUP BY
                 `samples`        TABLESAMPLE; `row_locks`: FOR UPDATE
               `set_operations`, over `outputs`
    leaves     `names`, `literals`, `session`, `volatile`
    operators  `operators`, `connectives`, `predicates`, `row_values`, `row_identity`, `quantified`, `subqueries`
    values     `conditionals`, `arrays`, `rows`, `casts`, `mz_timestamps`, `domains`
    functions  `functions`, which binds the calls of `written_calls`; `variadic`, `grammar`, `aggregates`
               (`inherited_order`, `hypothetical_sets`), `json_records`, `json_constructors`; `calls` chooses among the
               rows of the function table
    all        `shapes`, properties of unbound trees; `keys`, checks of sort and group keys; `origins`, the columns of
               relations that are output columns

Unsupported trees are refused by name (0A000). Views and common table expressions are bound once per reference, so that
every column of the plan has a unique id.
"""

from importlib import import_module

from server.sql.bind.binder import Binder, PlanContext, Replacement
from server.sql.bind.from_clause import other_tables
from server.sql.bind.origins import Origin, origins
from server.sql.bind.output_names import output_name
from server.sql.bind.outputs import assigned
from server.sql.bind.select_list import Item, returning_items
from server.sql.bind.tables import relation_of
from server.sql.bind.values import values

__all__ = [
    "Binder",
    "Item",
    "Origin",
    "PlanContext",
    "Replacement",
    "assigned",
    "origins",
    "other_tables",
    "output_name",
    "relation_of",
    "returning_items",
    "values",
]

for _module in (
    *("select", "set_operations", "values", "names", "literals", "session", "operators", "connectives", "predicates"),
    *("subqueries", "conditionals", "arrays", "casts", "functions", "grammar", "windows", "json_constructors"),
):  # each module registers the forms that it binds
    import_module(f"{__name__}.{_module}")
