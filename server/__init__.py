"""The server. Clients connect with PostgreSQL's protocol, Spark computes, the catalog and the log store the data.

How a query is executed:

1. `listener.Client.data_received` receives bytes from the socket and notifies the client's session.
2. `session.Session.received` handles the messages that `protocol.pgwire.Connection` decodes, one at a time.
3. `sql.parse.parse` parses the text. `execution.prepare.prepare` and `sql.plan.plan_query` plan it: names are resolved
   in the catalog, types follow PostgreSQL's rules (`sql.bind`), and the result is Spark SQL (`sql.render.spark_text`).
4. `interpreter.Interpreter.execute` dispatches on the statement's class. `execution` has one module for each family of
   statements.
5. `execution.query.select` chooses a timestamp, holds it (`frontiers.Frontiers.hold`), and reads the inputs at that
   timestamp (`coordinator.Coordinator.rows`).
6. `spark.Engine.run` computes the result. Its inputs and outputs are Arrow tables. Constants (`sql.constant`),
   unmodified rows of one relation (`sql.direct`) and system catalogs (`pg_catalog`) do not use Spark. Constants that
   may be expensive and queries over system catalogs run in worker processes (`evaluation`).
7. The session encodes the rows and writes them as fast as the socket accepts them (`outlet.Outlet.write_table`).

A write (`execution.writes.write`) is kept in its transaction as Arrow tables. COMMIT passes them to
`committer.Committer.commit`. All requests that wait at the same time share one timestamp and one SQLite transaction.
The coordinator then appends the changes to the feeds (`dataflow.feed.Feed`).

A subscription (`execution.subscribe.subscribe`) reads the feed of a collection or of a query
(`coordinator.Coordinator.join_query`). For a query, `dataflow` computes the changes of the result from the changes of
each commit. `dataflow.subscription.Subscription` combines the changes with progress, and `dataflow.envelope` makes the
rows that the client receives.

`house.House` creates the components. `__main__` starts and stops them. `sql` does no IO. Only `spark` depends on Spark,
and only `pg_catalog` depends on DuckDB.
"""
