"""PostgreSQL as a source: the tables of a publication, without a broker in between.

`kind`           CREATE SOURCE: checks the definition, returns the collections and the upstream
`upstream`       the interface to the ingestion: snapshot, then stream; what is stored of the position
`publication`    the tables and columns of a publication
`connection`     connections and errors; `protocol_guard` checks what a server sends before asyncpg reads it
`replication`    the replication protocol on a connection
`transactions`   received messages, divided at the boundaries of transactions
`snapshot`       COPY of tables as of an exported snapshot
`table_writer`   messages of one table to changes of its collection
`typed_rows`     texts to columns
`merge`          changes from messages and old rows
"""
