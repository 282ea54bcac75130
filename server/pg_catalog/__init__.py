"""PostgreSQL's system catalogs: what psql's backslash commands and drivers ask.

    a SELECT over system relations alone ─► `query`: recognise, plan, run
        `names`     what relations, registered names and session functions mean to the session
        `rewrite`   our tree of the query, to the SQL of the catalog engine; PostgreSQL's meaning wins
        `types`     PostgreSQL's types, DuckDB's, and those that clients are told of
        `outputs`   names and types of the output columns, as far as DuckDB does not know them
        `visible`   what of the catalog's state a database shows, and under which names
        `rows`      that as tables: of `databases`, `roles`, `relations`, `indexes` and `keys`, `functions`, and
                    `definitions`; `oids`, and `static` for what PostgreSQL has from the start
        `present`   the rows that a session sees, and sessions, settings and sizes as they are now
        `service`   what a worker process does: describes and runs queries
        `errors`    what DuckDB refuses, in PostgreSQL's words
        `database`  DuckDB in that process, over those rows: relations come in when a query names them;
                    `functions.sql` and `views.sql` are what PostgreSQL defines in SQL or C

It answers while Spark is still starting. What also names a user's relation goes through the planner to Spark, which
reads the same rows. No row of a user's relation is ever computed here.
"""
