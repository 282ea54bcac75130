# A materialized view that cannot be computed can be read up to its last valid time, and again after the error is
# removed.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

> CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS q FROM t

$ set-from-sql var=good
SELECT mz_now()

> SELECT * FROM m
10

> INSERT INTO t VALUES (0)

! SELECT * FROM m
exact:division by zero

! SUBSCRIBE m
exact:Evaluation error: division by zero

! SUBSCRIBE (SELECT max(q) AS q FROM m)
exact:Evaluation error: division by zero

> SUBSCRIBE m AS OF ${good} UP TO ${good} + 1
${good} 1 10

> SUBSCRIBE (SELECT max(q) AS q FROM m) AS OF ${good} UP TO ${good} + 1
${good} 1 10

> UPDATE t SET a = 5 WHERE a = 0

$ set-regex match=\b\d{13}\b replacement=<time>

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE m ENVELOPE UPSERT (KEY (q))

> FETCH 2 c
<time> upsert 10
<time> upsert 2

> COMMIT
