"""The server. Clients connect with PostgreSQL's protocol, Spark computes, the catalog and the log store the data.

How a query is executed:

1. `frontend.client.Client.data_received` receives bytes from the socket and notifies the client's session.
2. `frontend.session.Session.received` handles the messages that `protocol.pgwire.connection.Connection` decodes, one
   at a time.
3. `sql.grammar.parse.parse` parses the text. `execution.prepare.prepare` and `sql.plan.plan_query` plan it: names are
   resolved in the catalog, types follow PostgreSQL's rules (`sql.bind`), and the result is Spark SQL
   (`sql.render.spark_text`).
4. `frontend.dispatch.Dispatcher.execute` dispatches on the statement's class. `execution` has one module for each
   family of statements.
5. `execution.select.select` chooses a timestamp, holds it (`timeline.frontiers.Frontiers.hold`), and reads the inputs
   at that timestamp (`coordinator.reads.Reads.rows`).
6. `spark.Engine.run` computes the result. Its inputs and outputs are Arrow tables. Constants (`sql.constant`),
   unmodified rows of one relation (`sql.direct_scan`) and system catalogs (`pg_catalog`) do not use Spark. Constants
   that may be expensive and queries over system catalogs run in worker processes (`evaluation`).
7. The session encodes the rows and writes them as fast as the socket accepts them
   (`session_state.sender.Sender.write_table`).

A write (`execution.write.write`) is kept in its transaction as Arrow tables. COMMIT passes them to
`coordinator.committer.Committer.commit`. All requests that wait at the same time share one timestamp and one SQLite
transaction. The coordinator then appends the changes to the feeds (`dataflow.stream.feed.Feed`).

A subscription (`execution.subscribe.subscribe`) reads the feed of a collection or of a query
(`coordinator.subscriptions.Subscriptions.join_query`). For a query, `dataflow` computes the changes of the result from
the changes of each commit. `dataflow.stream.subscription.Subscription` combines the changes with progress, and
`dataflow.stream.envelope` makes the rows that the client receives.

The packages are layers: a package imports only packages that are listed below it.

`app`, `config`   assembly and configuration; `process` starts and stops a server, `__main__` is the command line
`top`             `tidewire top`, a client that shows what a server does
`http`            the HTTP port: the API, the console, metrics
`frontend`        the listener, sessions, portals, COPY
`explain`         EXPLAIN
`introspection`   system tables and metrics
`execution`       one module for each family of statements
`session_state`   what a session has between two statements: settings, transaction, results
`authorization`   privileges
`authentication`  who may connect: rules, passwords, certificates
`pg_catalog`      PostgreSQL's system catalogs; the only package that uses DuckDB
`evaluation`      worker processes for work whose cost a client controls
`egress`          sinks: the interface to external systems, and the task that writes changes to them
`ingest`          sources: the interface to external systems, and the task that copies their changes
`coordinator`     the state that outlives a session
`dataflow`        incremental maintenance and streams of changes
`timeline`        frontiers
`spark`           the Spark engine; the only package that uses Spark
`runtime`         tools for tasks, threads, metrics, logs and errors
`sql`             parsing, planning and rendering, without IO
`settings`        the variables of SET and SHOW
"""
