"""The state that outlives a session. The `coordinator` assembles it, and starts and stops it.

- Writes: the `committer` commits the requests of sessions, in groups; `row_buffer` and `payloads` convert their rows;
  `locks` order writers that read; `key_conflicts` finds writes of rows that a request has read; `backpressure` delays
  writers while dataflows lag; `compaction` merges the log's batches. `upstream_times` writes the collections that have
  the timestamps of their source. `sequences` has the values of sequences.
- Enforced keys: `key_indexes` finds duplicates, with `key_counts` over `key_codes`; `key_values` computes those of
  expressions.
- Holds: `holds` has their times and rules, `hold_lag` enforces MAX LAG.
- `reads`: the rows of relations at a time, through the `snapshot_cache` (with `recent_changes` and `sorted_keys`) and
  the `system_table_history`.
- `dataflows` runs the dataflows. `computations` creates what they compute. They belong to materialized `views`, which
  write to the log (`log_sink`, `log_writer`), to `indexes`, or to subscribed `queries`. `arrangements` store their
  state. `catalog_dataflows` starts and stops those of views and indexes when the catalog changes.
- `subscriptions` joins the feeds of queries and collections (`collection_feeds`).
- `notifications`: delivers NOTIFY to the sessions that listen.
- `clock`: the system's clock, whose jumps are logged.
- `activity`: the connected sessions; `endpoints`: their connections. `tasks`: the background tasks.

Imports point from `coordinator`, the only module that uses all others, to `tasks` and `holds`, which use none.
"""
