# SUBSCRIBE to SHOW statements, system tables, and joins of system tables with tables.

> CREATE TABLE observed (a int, b text)

$ set-regex match=\b\d{13}\b replacement=<time>

# SHOW statements and their columns.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SHOW TABLES)

> FETCH 1 c
mz_timestamp mz_diff name
----
<time> 1 observed

$ postgres-execute connection=${testdrive.url}
CREATE TABLE u (a int)
CREATE VIEW v AS SELECT a FROM observed

> FETCH 1 c
<time> 1 u

$ postgres-execute connection=${testdrive.url}
DROP TABLE u

> FETCH 1 c
<time> -1 u

> COMMIT

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SHOW COLUMNS FROM observed) ENVELOPE UPSERT (KEY (name))

> FETCH 2 c
mz_timestamp mz_state name nullable type
----
<time> upsert a true integer
<time> upsert b true text

> COMMIT

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SHOW VIEWS LIKE 'v%')

> FETCH 1 c
<time> 1 v

> COMMIT

! SUBSCRIBE (SHOW search_path)
contains:SUBSCRIBE

# System tables. This one is joined with a table.

> INSERT INTO observed VALUES (1, 'observed')

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SELECT t.a, o.type FROM observed AS t JOIN mz_tables AS m ON m.name = t.b JOIN mz_objects AS o ON o.id = m.id)

> FETCH 1 c
<time> 1 1 table

$ postgres-execute connection=${testdrive.url}
INSERT INTO observed VALUES (2, 'observed'), (3, 'nothing')

> FETCH 1 c
<time> 1 2 table

> COMMIT

# mz_subscriptions lists running subscriptions with their sessions and the relations of their queries.

$ postgres-connect name=reader url=${testdrive.url}

$ postgres-execute connection=reader
BEGIN
DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) AS n FROM observed)
FETCH 0 c

> SELECT s.cluster_id IS NOT NULL, s.created_at <= now(), o.name FROM mz_internal.mz_subscriptions AS s JOIN mz_objects AS o ON s.referenced_object_ids[1] = o.id WHERE o.name = 'observed'
true true observed

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) AS n FROM mz_internal.mz_subscriptions AS s JOIN mz_objects AS o ON s.referenced_object_ids[1] = o.id WHERE o.name = 'observed')

> FETCH 1 c
<time> 1 1

$ postgres-execute connection=reader
COMMIT

> FETCH 2 c
<time> -1 1
<time> 1 0

> COMMIT

# pg_cancel_backend ends the stream of another session. The next FETCH of the cursor returns the error.

$ postgres-execute connection=reader
BEGIN
DECLARE c CURSOR FOR SUBSCRIBE observed
FETCH 0 c

$ set-from-sql var=pid
SELECT c.connection_id::text FROM mz_internal.mz_sessions AS c JOIN mz_internal.mz_subscriptions AS s ON s.session_id = c.id JOIN mz_objects AS o ON s.referenced_object_ids[1] = o.id WHERE o.name = 'observed'

> SELECT pg_cancel_backend(${pid})
true

> SELECT count(*) FROM mz_internal.mz_subscriptions AS s JOIN mz_objects AS o ON s.referenced_object_ids[1] = o.id WHERE o.name = 'observed'
0

> SELECT pg_cancel_backend(1)
false
