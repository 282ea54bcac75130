# DECLARE name CURSOR FOR SUBSCRIBE ..., FETCH, CLOSE. The messages are tested in cursors.pt.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1), (2), (3)

$ set-regex match=\b\d{13}\b replacement=<time>

! DECLARE c CURSOR FOR SUBSCRIBE t
exact:DECLARE CURSOR can only be used in transaction blocks

! FETCH c
exact:cursor "c" does not exist

! CLOSE c
exact:cursor "c" does not exist

# DECLARE checks nothing. The first FETCH reports errors, even FETCH 0.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE missing ENVELOPE UPSERT (KEY (a))

! FETCH 0 c
exact:relation "missing" does not exist

> ROLLBACK

# The first FETCH determines the AS OF time, even FETCH 0. The snapshot includes the writes before it.

> BEGIN

> DECLARE early CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT false)

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (4)

> FETCH 0 early

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (5)

> FETCH ALL early
<time> 1 5

> COMMIT

# FETCH returns one row, FETCH n at most n rows, and FETCH ALL the available rows. The other rows of a batch are left
# for the next FETCH.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH c
<time> 1 1

> FETCH NEXT FROM c
<time> 1 2

> FETCH FORWARD 2 FROM c
<time> 1 3
<time> 1 4

> FETCH 100 IN c
<time> 1 5

# Without TIMEOUT, FETCH waits for a row indefinitely.

$ postgres-execute connection=${testdrive.url} background=true
INSERT INTO t VALUES (6), (7)

> FETCH ALL c
<time> 1 6
<time> 1 7

# TIMEOUT '0s' returns the available rows, which may be none.

> FETCH 10 c WITH (TIMEOUT '0s')

> FETCH ALL c WITH (TIMEOUT = '0s')

> FETCH 10 c WITH (TIMEOUT '100 ms')

# With a TIMEOUT, FETCH n waits for n rows, which may have different timestamps.

$ postgres-execute connection=${testdrive.url} background=true
INSERT INTO t VALUES (8)
INSERT INTO t VALUES (9)

> FETCH 2 c WITH (TIMEOUT '20s')
<time> 1 8
<time> 1 9

# Available rows are returned even if the TIMEOUT has passed.

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (10), (11)

> FETCH 1 c
<time> 1 10

> FETCH 1 c WITH (TIMEOUT '0s')
<time> 1 11

# The rest of a batch is returned together with the available rows that follow it.

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (12), (13)

> FETCH 1 c
<time> 1 12

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (14)

> FETCH 10 c
<time> 1 13
<time> 1 14

! FETCH c WITH (TIMEOUT '-1s')
exact:invalid TIMEOUT: cannot convert negative interval to duration

> ROLLBACK

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

! FETCH c WITH (TIMEOUT '2 days')
exact:timeout out of range: 172800s

> ROLLBACK

# FETCH ALL with a TIMEOUT waits for the whole TIMEOUT and returns all rows of that time.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT false)

> FETCH 0 c

$ postgres-execute connection=${testdrive.url} background=true
INSERT INTO t VALUES (15)
INSERT INTO t VALUES (16)

> FETCH ALL c WITH (TIMEOUT '2s')
<time> 1 15
<time> 1 16

> COMMIT

# After the end of a stream, FETCH returns no rows and does not wait.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (VALUES (1), (2), (3))

> FETCH 2 c
18446744073709551615 1 1
18446744073709551615 1 2

> FETCH 2 c
18446744073709551615 1 3

> FETCH 2 c

> FETCH ALL c WITH (TIMEOUT '1h')

# A cursor name that is in use, and a closed cursor.

! DECLARE c CURSOR FOR SUBSCRIBE t
exact:cursor "c" already exists

> ROLLBACK

> BEGIN

> DECLARE c CURSOR WITHOUT HOLD FOR SUBSCRIBE t

> FETCH 0 c

> CLOSE c

! FETCH c
exact:cursor "c" does not exist

> ROLLBACK

! DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t
exact:WITH HOLD is unsupported for cursors

# Several cursors in one transaction: each SUBSCRIBE needs an AS OF, except for queries without relations.

$ set-from-sql var=now
SELECT mz_now()

> BEGIN

> DECLARE s CURSOR FOR SUBSCRIBE t AS OF AT LEAST ${now}

> DECLARE u CURSOR FOR SUBSCRIBE t ENVELOPE UPSERT (KEY (a)) AS OF AT LEAST ${now}

> DECLARE v CURSOR FOR VALUES (1), (2)

> FETCH 1 s
<time> 1 1

> FETCH 2 u
<time> upsert 1
<time> upsert 2

> FETCH 1 v
1

> FETCH 1 s
<time> 1 2

> FETCH ALL v WITH (TIMEOUT '1s')
2

> CLOSE ALL

! FETCH u
exact:cursor "u" does not exist

> ROLLBACK
