"""The state of a session between two statements, and the results of statements. Execution is built on it.

context.py         the session and the server's components; `transaction`, `pending_writes`: its transaction
prepared.py        prepared statements and their plans; `portals`: portals and cursors
results.py         the rows of a result; `sender`: how they are written to the client
"""
