"""A PostgreSQL table as a sink: it equals the collection as of the frontier that the same database stores.

`kind`        CREATE SINK: checks the definition and the table, returns the downstream
`table`       the interface to the task: one transaction writes changes and frontier
`target`      the columns of the table, which must be those of the collection
`statements`  the texts of the SQL statements
`connection`  the connection: COPY of Arrow tables, and errors
"""
