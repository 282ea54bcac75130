"""The server: PostgreSQL's clients on one side, Spark on the other, the catalog and the log between them.

The way of a query:

1. `listener.Client.data_received` takes bytes from the socket and tells the client's session.
2. `session.Session.received` has a `protocol.pgwire.Connection` make messages of them, and takes one after the other.
3. The text is parsed (`sql.parse.parse`) and planned (`execution.prepare.prepare`, `sql.plan.plan_query`): names by the
   catalog, types by PostgreSQL's rules (`sql.bind`), Spark SQL at last (`sql.render.spark_text`). Nothing has run yet.
4. `interpreter.Interpreter.execute` does what the statement says, by its class; `execution` has a module a family.
5. `execution.query.select` picks a time, holds it (`frontiers.Frontiers.hold`), and reads the inputs there
   (`coordinator.Coordinator.rows`).
6. `spark.Engine.run` computes: Arrow in, Arrow out. Constants (`sql.constant`), rows of one relation as they are
   (`sql.direct`) and the system catalogs (`pg_catalog`) never get there. Constants that may be expensive and catalog
   queries run in worker processes (`evaluation`).
7. The session has the rows encoded, and writes them as fast as the socket takes them (`outlet.Outlet.write_table`).

A write (`execution.writes.write`) waits in its transaction as Arrow tables. COMMIT hands them to
`committer.Committer.commit`: all who wait share one timestamp and one SQLite transaction. Then the coordinator tells
the feeds what was written (`dataflow.feed.Feed`).

A subscription (`execution.subscribe.subscribe`) joins a feed: that of a collection, or that of a query
(`coordinator.Coordinator.join_query`), for which `dataflow` turns each commit's changes into the query's.
`dataflow.subscription.Subscription` makes timestamps and progress of them, `dataflow.envelope` the rows to show.

`house.House` puts the parts together, `__main__` starts and ends them. `sql` does no IO; `spark` alone
knows Spark, `pg_catalog` alone DuckDB.
"""
