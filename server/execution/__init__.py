"""Execution of statements. Each module executes one family of statements; the session calls them.

prepare.py            statement -> Prepared: the plan, with the types of parameters and result
arguments.py          the arguments of EXECUTE
query.py              SELECT: chooses a timestamp, reads rows from the log, computes with the engine
writes.py             INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer
definitions.py        CREATE, DROP, ALTER, COMMENT ON: a new catalog state for the committer
holds.py, roles.py, grants.py  likewise for HOLD, for roles and for privileges
subscribe.py          SUBSCRIBE: bounds, a reader of a feed, an envelope
show.py               SHOW: from the catalog; `show_query` is SHOW as a query, for SUBSCRIBE
explain.py            EXPLAIN: plans, statistics of an execution; dataflow_explained.py: the operators of a dataflow;
                      explanation.py: the output as text or JSON
explain_timestamp.py  EXPLAIN TIMESTAMP FOR
names.py              name resolution in the session; `times`: AS OF and UP TO; `planning`: expressions and stored views
"""
