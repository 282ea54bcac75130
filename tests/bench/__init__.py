"""Benchmarks: Tidewire and a real PostgreSQL (or an empty Spark job) in one run, in alternation.

`python -m tests.bench [NAME...]` prints a table. Absolute times vary with the machine; the reliable figure is the
ratio, the median of the ratios of all rounds. Nothing here asserts a time.
"""
