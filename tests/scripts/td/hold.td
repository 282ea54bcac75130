# HOLD: history that stays readable, held by one hold after another, advanced, and released. The rules are in
# docs/holds.md.

> CREATE TABLE t (a int)

> CREATE TABLE free (a int)

> INSERT INTO t VALUES (1)

> CREATE HOLD h ON t WITH (MAX LAG = '3h'::INTERVAL,)

$ set-from-sql var=one
SELECT mz_now()

> INSERT INTO t VALUES (2)

$ set-from-sql var=two
SELECT mz_now()

> ALTER HOLD h ADVANCE TO ${one}

# The table without a hold shows that retention alone would no longer keep these times readable.

> SELECT read_frontier > ${two} FROM mz_internal.mz_frontiers f JOIN mz_objects o ON o.id = f.object_id WHERE o.name = 'free'
true

> SELECT * FROM t AS OF ${one}
1

$ set-regex match=\b\d{13}\b replacement=<time>

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${one} UP TO ${two} + 1
<time> 1 2

$ unset-regex

! SUBSCRIBE t AS OF ${one} - 1
contains:could not find a valid timestamp for the query
hint:is at ${one}, after the requested time. Read at ${one} or later.

# Replacing a hold by another.

> CREATE HOLD g ON t AT ${one}

> DROP HOLD h

> SELECT * FROM t AS OF ${one}
1

> ALTER HOLD g ADVANCE TO ${two}

! ALTER HOLD g ADVANCE TO ${one}
contains:is before the read frontier of
detail:can be held is ${two}.

! SELECT * FROM t AS OF ${one}
contains:could not find a valid timestamp for the query

> SELECT * FROM t AS OF ${two}
1
2

# The objects that can be held, and their names.

> CREATE VIEW v AS SELECT a FROM t

! CREATE HOLD x ON v
contains:cannot create hold on view "v"

! CREATE HOLD x ON mz_tables
contains:cannot create hold on system table "mz_tables"

! CREATE HOLD g ON t
contains:hold "g" already exists

! ALTER HOLD g ADVANCE TO 18446744073709551615
contains:is beyond the write frontier

! CREATE HOLD x ON t WITH (MAX LAG = '-1s')
contains:MAX LAG must be positive

! DROP TABLE t
contains:cannot drop table t because other objects depend on it
detail:hold g depends on table t

> BEGIN

! ALTER HOLD g ADVANCE
contains:ALTER HOLD ... ADVANCE cannot run inside a transaction block

> ROLLBACK

> ALTER HOLD g RENAME TO renamed

> SELECT name, at, max_lag, status FROM mz_holds WHERE name = 'renamed'
renamed ${two} 03:00:00 ok

> DROP VIEW v

> DROP TABLE t CASCADE

> SELECT count(*) FROM mz_holds WHERE name = 'renamed'
0
