"""The state of a session between two statements, and the results of statements. Execution is built on it.

- `context`: the session and the server's components. `transaction`: its transaction. `constraints`: checks of the rows
  that it writes. `advisory_locks`, `listening`: its advisory locks, and the channels on which it listens.
- `prepared`: prepared statements and their plans. `portals`: portals and cursors.
- `results`: the rows of a result. `sender`: how they are written to the client.
"""
