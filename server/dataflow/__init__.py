"""Incremental view maintenance: dataflows that turn the log's updates into the updates of queries.

- `plan`: delta plans, made from the relations of queries. Each node has a rule for the changes of its output.
- `operators`: one class for each kind of node, with its state.
- `arrangements`: that state: rows sorted by a key, in memory or in files.
- `runtime`: a dataflow hydrates a computation, follows the `inputs` and writes the changes to a sink: the log of a
  materialized view, an index, or the feed of a subscribed query. A computation uses operators, or computes the whole
  query at each time and subtracts the previous result. A dataflow without work is at rest until a change wakes it.
- `stream`: a feed has the updates of one relation or query in order of timestamp, buffered for readers that lag. A
  subscription is a subscriber's position in a feed: snapshot, updates, progress, bounds.
"""
