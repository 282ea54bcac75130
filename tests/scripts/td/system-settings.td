# ALTER SYSTEM: the settings that enable outputs of SUBSCRIBE, and the defaults of new sessions.

> CREATE TABLE t (k int, v text)

> SHOW enable_envelope_upsert_in_subscribe
on

> ALTER SYSTEM SET enable_envelope_upsert_in_subscribe = off

> SHOW enable_envelope_upsert_in_subscribe
off

! SUBSCRIBE t ENVELOPE UPSERT (KEY (k))
contains:ENVELOPE UPSERT (KEY (..)) is not available

> ALTER SYSTEM SET enable_envelope_debezium_in_subscribe TO false

! SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (k))
contains:ENVELOPE DEBEZIUM (KEY (..)) is not available

> ALTER SYSTEM SET enable_within_timestamp_order_by_in_subscribe = off

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY k
contains:WITHIN TIMESTAMP ORDER BY .. is not available

> ALTER SYSTEM RESET enable_envelope_upsert_in_subscribe

> SHOW enable_envelope_upsert_in_subscribe
on

> ALTER SYSTEM RESET ALL

> SHOW enable_envelope_debezium_in_subscribe
on

# A session cannot set a setting of the server.

! SET enable_envelope_upsert_in_subscribe = off
contains:parameter "enable_envelope_upsert_in_subscribe" cannot be changed now

! ALTER SYSTEM SET nothing_like_it = 1
contains:unrecognized configuration parameter "nothing_like_it"

! ALTER SYSTEM SET statement_timeout = soon
contains:invalid value for parameter "statement_timeout": "soon"

> BEGIN

! ALTER SYSTEM RESET ALL
contains:ALTER SYSTEM cannot run inside a transaction block

> ROLLBACK
