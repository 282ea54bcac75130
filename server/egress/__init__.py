"""Sinks: the changes of collections are written to external systems.

`downstream`   the interface of what a sink writes: an external system, from a frontier on
`sink_kind`    the interface of a kind of sink: the check at CREATE, its downstream, and what remains after DROP
`kinds`        the kinds by name
`definitions`  definitions with resolved secrets
`parts`        the parts of a table that are encoded at a time; `labels`: enumerated types as text
`sink_task`    the task of one sink: reads committed changes, writes them, and commits its frontier
`sinks`        starts and ends the tasks as sinks are created and dropped
`history`      a downstream that writes messages of CDCv2
`row_changes`  the changes of rows as pairs of old and new rows; `row_messages` encodes them
`net_changes`  what changes do to the rows of keys; `key_errors` are about rows that violate a KEY
`file`, `kafka`, `postgres`  the kinds

With F the committed frontier of a sink, all changes at times before F are durable in the external system. A downstream
that stores its frontier with the changes (`keeps_frontier`) has exactly the changes before its frontier G, and F <= G:

    target = collection as of G - 1

Any other downstream may have changes at times from F on, which are written again after a crash.
"""
