"""Incremental view maintenance: dataflows that turn the log's updates into the updates of queries.

- `computation`: a query and its current time. `Recomputation` computes the whole query at each time and subtracts the
  previous result; `incremental` uses operators. `delta` lowers a relation to a plan of `nodes`, and `operators` creates
  the operator of each node. An `arrangement` consists of sorted `run`s and finds rows by key; arrangements of
  collections are `shared`. A `filed_arrangement` stores its runs in files, which Spark's executors search (`run_files`)
  in tasks that a `task_runner` submits.
- `work` counts what operators did, `hydration` tracks the computation of the initial state, `explained` formats plans.
- `feed`: the updates of one relation in order of timestamp, buffered for readers that lag. The feed of a collection
  contains the log's updates; the feed of a query is a dataflow. Equal queries share one feed.
- `view`: the dataflow of a materialized view, which writes its updates to the log.
- `subscription`: a subscriber's position in a feed: snapshot, updates, progress, bounds.
"""
