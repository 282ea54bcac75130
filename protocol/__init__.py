"""Wire and memory formats, without IO.

`pgwire` is PostgreSQL's frontend/backend protocol, version 3. `avro` decodes the messages of Kafka sources. `columnar`
accesses Arrow's buffers. Functions here take and return bytes, messages and Arrow batches. They never await, read no
clock and know nothing about tables.
"""
