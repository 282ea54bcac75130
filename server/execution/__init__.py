"""What each statement does: one file a family, called by the session.

prepare.py            statement -> Prepared: planned, with the types of its parameters and result; `arguments` of EXECUTE
query.py              SELECT: a time to read at, rows from the log, computation by the engine
writes.py             INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer
definitions.py        CREATE, DROP, ALTER, COMMENT ON: a new catalog state for the committer; so `holds`, `roles`, `grants`
subscribe.py          SUBSCRIBE: bounds, a place in a feed, an envelope
show.py               SHOW and EXPLAIN: from the catalog and the plan; `show_query` is SHOW as a query to subscribe to
explain_timestamp.py  EXPLAIN TIMESTAMP FOR
names.py              what names mean to the session; `times`: AS OF and UP TO; `planning`: expressions and stored views
"""
