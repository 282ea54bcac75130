"""Execution of statements. Each module executes one family of statements; `server.frontend.dispatch` calls them.

prepare.py       statement -> `session_state.prepared.Prepared`: the plan, with the types of parameters and result
arguments.py     the arguments of EXECUTE
select.py        SELECT: chooses a timestamp, reads rows from the log, computes with the engine
catalog_query/   SELECT over system relations alone
write.py         INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer
ddl/             CREATE, DROP, ALTER, COMMENT ON, holds, roles, privileges: a new catalog state for the committer
subscribe.py     SUBSCRIBE: bounds, a reader of a feed, an envelope
show.py          SHOW: from the catalog; `show_query` is SHOW as a query, for SUBSCRIBE
names.py         name resolution in the session; `times`: AS OF and UP TO; `planning`: expressions and stored views
"""
