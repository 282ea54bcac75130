# The four cases of an envelope for the updates of one key at one timestamp: one insert, one delete, one of each, and
# anything else, which is a key_violation.

> CREATE TABLE t (k1 int, k2 text, v int)

> INSERT INTO t VALUES (1, 'gone', 10), (1, 'changed', 10), (1, 'kept', 10), (1, 'twice', 10), (NULL, 'n', 10)

> INSERT INTO t VALUES (1, 'lost', 10), (1, 'lost', 10), (1, 'lost two', 10), (1, 'lost two', 11)

$ set-from-sql var=before
SELECT mz_now()

# Keeps the current time readable.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT * FROM t

$ postgres-execute connection=${testdrive.url}
BEGIN
DELETE FROM t
INSERT INTO t VALUES (1, 'changed', 11), (1, 'kept', 10), (1, 'twice', 11), (1, 'twice', 12), (NULL, 'n', 11)
INSERT INTO t VALUES (1, 'new', 10), (2, 'two new', 10), (2, 'two new', 11), (2, 'same', 10), (2, 'same', 10)
COMMIT

$ set-regex match=\b\d{13}\b replacement=<time>

> BEGIN

> DECLARE upsert CURSOR FOR SUBSCRIBE t ENVELOPE UPSERT (KEY (k1, k2)) WITH (SNAPSHOT false) AS OF AT LEAST ${before}

> FETCH ALL upsert WITH (TIMEOUT '0s')
mz_timestamp mz_state k1 k2 v
----
<time> delete 1 gone <null>
<time> upsert 1 changed 11
<time> upsert 1 new 10
<time> key_violation 1 twice <null>
<time> key_violation 1 lost <null>
<time> key_violation 1 "lost two" <null>
<time> key_violation 2 "two new" <null>
<time> key_violation 2 same <null>
<time> upsert <null> n 11

> DECLARE debezium CURSOR FOR SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (k1, k2)) WITH (SNAPSHOT false) AS OF AT LEAST ${before}

> FETCH ALL debezium WITH (TIMEOUT '0s')
mz_timestamp mz_state k1 k2 before_v after_v
----
<time> delete 1 gone 10 <null>
<time> upsert 1 changed 10 11
<time> insert 1 new <null> 10
<time> key_violation 1 twice <null> <null>
<time> key_violation 1 lost <null> <null>
<time> key_violation 1 "lost two" <null> <null>
<time> key_violation 2 "two new" <null> <null>
<time> key_violation 2 same <null> <null>
<time> upsert <null> n 10 11

> COMMIT

# The snapshot is handled as any other timestamp. All NULL keys are the same key.

> CREATE TABLE nulls (k int, v text)

> INSERT INTO nulls VALUES (NULL, 'a'), (NULL, 'b'), (1, NULL)

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE nulls ENVELOPE UPSERT (KEY (k))

> FETCH ALL c
<time> upsert 1 <null>
<time> key_violation <null> <null>

> COMMIT

# A change of the key is a delete of the old key and an insert of the new one.

> CREATE TABLE moved (k int, v text)

> INSERT INTO moved VALUES (1, 'x')

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE moved ENVELOPE DEBEZIUM (KEY (k)) WITH (SNAPSHOT false)

> FETCH 0 c

$ postgres-execute connection=${testdrive.url}
BEGIN
DELETE FROM moved
INSERT INTO moved VALUES (2, 'x')
COMMIT

> FETCH 2 c WITH (TIMEOUT '10s')
<time> delete 1 x <null>
<time> insert 2 <null> x

> COMMIT

# If all columns are keys, only the keys are shown. Replacing a row by another changes two keys.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE moved ENVELOPE UPSERT (KEY (v, k))

> FETCH ALL c
mz_timestamp mz_state v k
----
<time> upsert x 2

> COMMIT
