"""The server side of PostgreSQL's frontend/backend protocol, version 3, without IO.

`connection` converts between bytes and messages and tracks the protocol's phases. `messages` defines the messages of
both sides. `errors` and `types` define the errors and types that the whole server uses.
"""
