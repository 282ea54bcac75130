"""The messages of PostgreSQL's frontend/backend protocol 3.0 and their encodings.

`startup` has the messages of the startup and of passwords, `sasl` those of SASL authentication, `frontend` those of
clients, `backend` those of the server, and `copying` those of COPY. `wire_format` reads and writes the parts of
messages.

Source: PostgreSQL manual, chapters 55.2 and 55.7; postmaster.c, postgres.c and pqformat.c for limits and wording.

Every class has:
- `code`, its type byte; empty for the four packets that may open a connection;
- `parse(data, at, end)`: parses the body `data[at:end]`, the bytes after the length word. A malformed body raises
  PgError 08P01 with PostgreSQL's message (severity ERROR: the framing is intact), text that is not UTF-8 raises 22021;
- `serialize()`: the complete message with type byte and length.

Messages must not be modified. They are slotted dataclasses that are not frozen, because freezing costs one
`object.__setattr__` call per field of every message. Messages without fields and ReadyForQuery are serialized once, at
import. Rows are usually sent as bytes by `Connection.send_encoded`; `DataRow` is for rows that do not come from Arrow.

Format codes are 0 for text, 1 for binary.
"""
