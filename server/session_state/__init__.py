"""The state of a session between two statements, and the results of statements. Execution is built on it.

- `context`: the session and the server's components. `session_state`: its interface for the modules that it uses.
  `setting_changes`: SET and RESET. `observation`: what the session does, for pg_stat_activity; `signals`: how it
  cancels and ends others.
- `transaction`: its transaction. `read_times`: the times of its reads. `commits`: its requests to the committer.
  `transaction_errors`: conflicts with others. `constraints`: checks of the rows that it writes; `key_checks`: of their
  keys, except those that it checks at COMMIT (`deferral`). `advisory_locks`, `listening`: its advisory locks, and the
  channels on which it listens.
- `volatile_functions`: the session's values of sequences and random numbers. `current_query`: what it executes.
  `facts`: values of functions that describe its connection, query and transaction.
- `prepared`: prepared statements and their plans. `portals`: portals and cursors; `cursor_rows`: the rows of a cursor.
- `results`: the rows of a result, in a `row_format`. `sender`: how they are written to the client. `progress`: notices
  about long statements.
"""
