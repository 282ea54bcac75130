"""Queries kept up to date: from the log's changes to what a subscriber is sent.

- `computation`: a query that stands at a time and can be moved on; computed anew and subtracted (`Recomputation`), or
  `incremental`. For that `delta` makes a plan of `nodes`, `operators` are these at work, and `arrangement`s, of sorted
  `run`s, find rows by their keys; those of collections are `shared`. A `filed_arrangement` has its runs in files that
  Spark's executors search (`run_files`), by tasks that a `task_runner` gives to them.
- `work`, `hydration`: what operators did, and how far a dataflow is with its first state; `explained` shows plans.
- `feed`: the changes of one relation, one timestamp after another, with their history for whoever lags behind.
  A collection's feed is the log's changes as they are; a query's feed is a dataflow. Equal queries share one.
- `view`: the dataflow of a materialized view, which writes its changes to the log like any collection.
- `subscription`: one subscriber's place in a feed: snapshot, changes, progress, bounds.
"""
