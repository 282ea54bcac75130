"""What each statement does: one file a family, called by the session.

prepare.py       statement -> Prepared: planned, with the types of its parameters and result
query.py         SELECT: a time to read at, rows from the log, computation by the engine
writes.py        INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer
definitions.py   CREATE, DROP, ALTER: a new catalog state for the committer
subscribe.py     SUBSCRIBE: bounds, a place in a feed, an envelope
show.py          SHOW: from the catalog
explain.py       EXPLAIN: plans, what running a query took; dataflow_explained.py: what its dataflow does;
                 explanation.py: that as text or JSON; explain_timestamp.py: EXPLAIN TIMESTAMP
"""
