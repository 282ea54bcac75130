"""Benchmarks: Tidewire beside a real PostgreSQL (or beside Spark's floor) in one run, in alternation.

`python -m tests.bench [NAME...]` prints a table. Absolute times swing with the machine; the figure to trust is the
ratio, the median of the rounds' own ratios. Nothing here asserts a time.
"""
