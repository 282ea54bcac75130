"""EXPLAIN: plans of statements, statistics of an execution, running dataflows, timestamps.

`explain`    executes an EXPLAIN, with `relation` (plans), `dataflow` (operators) and `output` (text, JSON, `graph`)
`timestamp`  EXPLAIN TIMESTAMP
"""
