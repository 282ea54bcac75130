"""Delta plans: how the changes of a query's result are computed from the changes of its inputs.

`maintenance_strategy`   decides between operators and recomputation
`lowering`               makes a plan of `nodes` from a relation, with the modules below
`accumulable`            aggregates that are computed from sums and counts; `extremes`: from distinct or extreme values;
                         `totals_statements`: the statements of both
`partitions`             windows that contain the operators above them; `top_k`: operators that need only the first rows
`late_columns`           columns that do not pass through Spark
`relevance`              which rows of an input can affect a query
`description`            a plan as EXPLAIN shows it
"""
