"""Logical replication of PostgreSQL: the streaming replication protocol, and `pgoutput` with protocol version 1.

`stream`    the messages inside CopyData: WAL data, keepalives and status updates; log sequence numbers
`messages`  the messages that describe transactions and relations, one object each
`rows`      the messages that change rows, many at a time as Arrow columns

Source: PostgreSQL manual, chapters 55.4 "Streaming Replication Protocol", 55.5 "Logical Streaming Replication Protocol"
and 55.9 "Logical Replication Message Formats". Nothing here does IO.
"""


class BadMessage(Exception):
    """A message that does not follow the protocol."""


class BadText(Exception):
    """A value that is not UTF-8. PostgreSQL sends such values of databases with the encoding SQL_ASCII."""
