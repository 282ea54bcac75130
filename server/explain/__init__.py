"""EXPLAIN: plans of statements, statistics of an execution, running dataflows, timestamps."""
