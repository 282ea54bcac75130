"""The languages spoken at Tidewire's borders.

Nothing here does IO, awaits, reads a clock or knows what a table is: bytes and Arrow batches come in,
messages, bytes and Arrow batches go out. `pgwire` is PostgreSQL's frontend/backend protocol, version 3,
`columnar` Arrow's columns in memory.
"""
