"""Statements that change the catalog. Each is a function from one catalog state to the next.

define.py        executes a statement: its function, the transaction, the commit and its retries
kinds.py         the functions of each kind of item: CREATE, SHOW CREATE, SHOW
named_objects.py the objects that statements name, and the errors for names
databases.py     CREATE DATABASE (`database_options`); likewise `schemas`, `tables`, `views`, `holds`, `sequences`,
                 `types`, `domains`, and `indexes` (`index_options`)
sources.py       CREATE SOURCE; `connections`, `secrets`; `formats`: FORMAT and ENVELOPE
sinks.py         CREATE SINK
drop.py          DROP of all kinds; likewise `alter` (RENAME TO, OWNER TO, RETAIN HISTORY) and `comments`
roles.py         CREATE, ALTER and DROP ROLE; `named_roles`: the roles that statements name
memberships.py   GRANT and REVOKE of roles; `owned_objects`: REASSIGN OWNED, DROP OWNED
grants.py        GRANT and REVOKE of privileges; `default_privileges`; `acl_changes`: what both use
columns.py       rules for columns; `view_columns`: RENAME COLUMN, and views over columns that change
keys.py          PRIMARY KEY and UNIQUE; `checks`, `foreign_keys`; `constraints`: DROP and RENAME CONSTRAINT
retention.py     RETAIN HISTORY; `system_settings`: ALTER SYSTEM
"""
