"""What each statement does: one file a family, called by the session.

prepare.py            statement -> Prepared: planned, with the types of its parameters and result
arguments.py          the arguments of EXECUTE
query.py              SELECT: a time to read at, rows from the log, computation by the engine
writes.py             INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer
definitions.py        CREATE, DROP, ALTER, COMMENT ON: a new catalog state for the committer
holds.py, roles.py, grants.py  the same for HOLD, and for who may do what
subscribe.py          SUBSCRIBE: bounds, a place in a feed, an envelope
show.py               SHOW: from the catalog; `show_query` is SHOW as a query to subscribe to
explain.py            EXPLAIN: plans, what running a query took; dataflow_explained.py: what its dataflow does;
                      explanation.py: that as text or JSON
explain_timestamp.py  EXPLAIN TIMESTAMP FOR
names.py              what names mean to the session; `times`: AS OF and UP TO; `planning`: expressions and stored views
"""
