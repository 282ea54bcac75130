"""Execution of statements. Each module executes one family of statements; `server.frontend.dispatch` calls them.

prepare.py       statement -> `session_state.prepared.Prepared`: the plan, with the types of parameters and result
arguments.py     the arguments of EXECUTE; `user_types`: types of users
select.py        SELECT: chooses a timestamp, reads rows from the log, computes with the engine
catalog_query/   SELECT over system relations alone
volatile.py      queries that call volatile functions; `waiting`: functions that wait
preparation.py   what a query waits for before it is computed, for progress notices
write.py         INSERT, UPDATE, DELETE, TRUNCATE, COPY FROM: changes for the committer; `with_writes`: WITH that writes
insert_on_conflict.py  ON CONFLICT; `own_changes`: what a transaction sees of its changes
row_rules.py     generated columns and CHECK of new rows; `second_digits`: timestamp(n) and the like
create_table_as.py  CREATE TABLE AS and SELECT INTO
alter_table.py   ALTER TABLE, with `add_check` and `add_key`; `alter_domain`: ALTER DOMAIN that checks rows
add_column.py    its action ADD COLUMN; `drop_column`, `set_column_type`; `altered_columns`: functions that they share
lock_tables.py   LOCK TABLE; `set_constraints`: SET CONSTRAINTS
maintenance.py   VACUUM, ANALYZE, REINDEX, REFRESH; `extensions`: others that only check names
drop_built_in.py DROP of kinds of object that users cannot create
ddl/             CREATE, DROP, ALTER, COMMENT ON, holds, roles, privileges: a new catalog state for the committer
subscribe.py     SUBSCRIBE: bounds, a reader of a feed, an envelope
show.py          SHOW: from the catalog; `show_query` is SHOW as a query, for SUBSCRIBE
names.py         name resolution in the session; `planning`: expressions and stored views
times.py         AS OF, UP TO and other constant times; `as_of`: whether that of AS OF can be read
"""
