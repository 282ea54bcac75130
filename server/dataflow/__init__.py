"""Incremental view maintenance: dataflows that turn the log's updates into the updates of queries.

- `plan`: `lowering` makes a plan of `nodes` from a relation, `description` formats it, and `relevance` finds which rows
  of the inputs can affect it.
- `operators`: one class per kind of node, created by the `factory`. `statistics` counts what they did.
- `arrangements`: an `arrangement` consists of sorted `run`s and finds rows by key. Arrangements of collections are
  `shared`. A `file_arrangement` stores its runs in files, which Spark's executors probe (`run_files`) in tasks that a
  `task_runner` submits.
- `runtime`: a `computation` is a query and its current time. `Recomputation` computes the whole query at each time and
  subtracts the previous result; `incremental` uses operators. A `dataflow` hydrates a computation, follows the inputs
  and writes the changes to a sink: the log of a materialized view, an `index`, or the feed of a subscribed query. A
  dataflow without work is at rest until `resting` wakes it.
- `stream`: a `feed` has the updates of one relation in order of timestamp, buffered for readers that lag. A
  `collection_feed` has those of the log, a `query_feed` those of a dataflow. A `partitioned_feed` divides the updates
  of a feed by the values of `selection`s. A `subscription` is a subscriber's position in a feed: snapshot, updates,
  progress, bounds. `broadcast` serves many subscriptions at once; `progress_row` encodes the progress for them.
"""
