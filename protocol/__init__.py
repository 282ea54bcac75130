"""Wire and memory formats, without IO.

`pgwire` is PostgreSQL's frontend/backend protocol, version 3. `pgoutput` decodes PostgreSQL's logical replication.
`avro` decodes and encodes messages of Kafka. `cdcv2` reads and writes the changes of collections. `columnar` is work on
Arrow's columns. Functions here take and return bytes, messages and Arrow batches. They never await, read no clock and
know nothing about tables.
"""
