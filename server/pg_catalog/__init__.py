"""PostgreSQL's system catalogs, as used by psql's backslash commands and by drivers.

A SELECT over system relations alone (`server.execution.catalog_query`) runs in DuckDB, the catalog engine:

    `engine`    describes and runs queries in worker processes
    `rewrite`   translates the query to DuckDB's SQL with PostgreSQL's semantics. `annotations` records the types of
                operands before; `equivalents`, `from_items` and `registered_values` translate single functions,
                functions in FROM and values of types such as regclass; `trees` constructs calls; `refusals` has errors
    `types`     maps between PostgreSQL's types, DuckDB's types and the types sent to clients
    `outputs`   determines names and types of columns and arrays where DuckDB does not know PostgreSQL's
    `visible`   the objects of the catalog that are visible in a database, and their names
    `rows`      the system tables as Arrow, from `databases`, `roles`, `relations`, `indexes` and `keys`, `functions`,
                `sequences`, `comments`, `acls`, `user_types` (with `type_rows`), `dependencies` and `definitions`, with
                `oids`; `static` has the rows that every PostgreSQL database has, `time_zones` those of time zones
    `service`   describes and runs queries in a worker process
    `database`  DuckDB in that process; it loads a relation when a query first names it. `functions.sql` and `views.sql`
                define the functions and views that PostgreSQL defines in SQL or C
    `errors`    translates DuckDB's errors to PostgreSQL's

These queries work before Spark has started. A query that also names a user's relation is planned for Spark, which reads
the same rows. Rows of users' relations are never computed here.
"""
