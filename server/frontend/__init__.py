"""Connections of clients.

listener.py          accepts connections and shuts down; `client`: one connection; `client_registry`: limits, signals;
                     `write_pause`: the pauses of output that a client does not read
authentication.py    the messages of a login; `half_open`: the limit of connections before it
startup.py           what the startup parameters mean; opens sessions
session.py           one client's messages, one at a time
simple_query.py      Query messages; `extended_query`: Parse, Bind, Describe, Execute, Close
constant_queries.py  queries of constants, answered without a task
query_cache.py       plans and constant answers by text, shared by all sessions
portal_runner.py     runs portals and sends their rows; `copy`: COPY; `current_rows`: WHERE CURRENT OF
dispatch.py          executes statements by their class, with the modules of `execution`
transactions.py      begins and ends transactions; `cursors`: DECLARE to CLOSE; `set_statements`: SET
statement_task.py    the task of a message that must wait; `responses`: errors and ReadyForQuery
notification_sender.py  sends notifications between transactions
"""
