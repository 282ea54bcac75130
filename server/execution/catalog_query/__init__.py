"""SELECT over system relations alone, as a session sees them: planned here, run by `server.pg_catalog.engine`.

`query` recognizes, plans and runs it. `values` does so for expressions over catalogs in other statements. `names`
resolves its names. `session_rows` has the rows that a session sees. `privilege_calls` evaluates privilege functions of
columns, and `signals` calls pg_terminate_backend for rows.
"""
