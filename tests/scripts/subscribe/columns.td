# The columns of each output. k stands for the key columns in the order of the KEY clause, v for the other columns in
# the order of the relation.

> CREATE TABLE t (a int, b text, c bool, d numeric(5, 2))

$ postgres-connect name=writer url=${testdrive.url}

> INSERT INTO t VALUES (1, 'x', true, 1.5)

$ set-from-sql var=now
SELECT mz_now()

$ set-regex match=\b\d{13}\b replacement=<time>

# mz_timestamp [mz_progressed] mz_diff and the relation's columns, also with WITHIN TIMESTAMP ORDER BY.

> BEGIN

> DECLARE plain CURSOR FOR SUBSCRIBE t AS OF AT LEAST ${now}

> FETCH 1 plain
mz_timestamp mz_diff a b c d
----
<time> 1 1 x true 1.50

> DECLARE ordered CURSOR FOR SUBSCRIBE t WITHIN TIMESTAMP ORDER BY b WITH (PROGRESS) AS OF AT LEAST ${now}

> FETCH 1 ordered
mz_timestamp mz_progressed mz_diff a b c d
----
<time> true <null> <null> <null> <null> <null>

> FETCH 1 ordered
mz_timestamp mz_progressed mz_diff a b c d
----
<time> false 1 1 x true 1.50

# mz_timestamp [mz_progressed] mz_state k... v...

> DECLARE upsert CURSOR FOR SUBSCRIBE t ENVELOPE UPSERT (KEY (c, b)) AS OF AT LEAST ${now}

> FETCH 1 upsert
mz_timestamp mz_state c b a d
----
<time> upsert true x 1 1.50

> DECLARE upsert_progress CURSOR FOR SUBSCRIBE t ENVELOPE UPSERT (KEY (b)) WITH (PROGRESS) AS OF AT LEAST ${now}

> FETCH 1 upsert_progress
mz_timestamp mz_progressed mz_state b a c d
----
<time> true <null> <null> <null> <null> <null>

# mz_timestamp [mz_progressed] mz_state k... before_v... after_v...

> DECLARE debezium CURSOR FOR SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (d, a)) AS OF AT LEAST ${now}

> FETCH 1 debezium
mz_timestamp mz_state d a before_b before_c after_b after_c
----
<time> insert 1.50 1 <null> <null> x true

> DECLARE debezium_progress CURSOR FOR SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (a)) WITH (PROGRESS) AS OF AT LEAST ${now}

> FETCH 1 debezium_progress
mz_timestamp mz_progressed mz_state a before_b before_c before_d after_b after_c after_d
----
<time> true <null> <null> <null> <null> <null> <null> <null> <null>

# All columns are keys, so there are no value columns.

> DECLARE keys CURSOR FOR SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (d, c, b, a)) AS OF AT LEAST ${now}

> FETCH 1 keys
mz_timestamp mz_state d c b a
----
<time> insert 1.50 true x 1

> COMMIT
