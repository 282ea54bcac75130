# DECLARE name CURSOR FOR SUBSCRIBE ..., FETCH, CLOSE: rows when it suits the client. cursors.pt shows the messages.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1), (2), (3)

$ set-regex match=\b\d{13}\b replacement=<time>

! DECLARE c CURSOR FOR SUBSCRIBE t
exact:DECLARE CURSOR can only be used in transaction blocks

! FETCH c
exact:cursor "c" does not exist

! CLOSE c
exact:cursor "c" does not exist

# DECLARE looks at nothing: what is wrong is told by the first FETCH, even of no rows.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE missing ENVELOPE UPSERT (KEY (a))

! FETCH 0 c
exact:relation "missing" does not exist

> ROLLBACK

# The first FETCH chooses the time, even FETCH 0: what is written before it belongs to the snapshot, the rest does not.

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

# FETCH gives one row; FETCH n at most n; FETCH ALL what is ready. What is left of a batch is for the next FETCH.

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

# Without TIMEOUT it waits for a row, however long that takes.

$ postgres-execute connection=${testdrive.url} background=true
INSERT INTO t VALUES (6), (7)

> FETCH ALL c
<time> 1 6
<time> 1 7

# TIMEOUT '0s' takes what is ready, which may be nothing.

> FETCH 10 c WITH (TIMEOUT '0s')

> FETCH ALL c WITH (TIMEOUT = '0s')

> FETCH 10 c WITH (TIMEOUT '100 ms')

# With a time it waits for n rows; they may come at several timestamps.

$ postgres-execute connection=${testdrive.url} background=true
INSERT INTO t VALUES (8)
INSERT INTO t VALUES (9)

> FETCH 2 c WITH (TIMEOUT '20s')
<time> 1 8
<time> 1 9

# Ready rows are taken before the time is looked at.

$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (10), (11)

> FETCH 1 c
<time> 1 10

> FETCH 1 c WITH (TIMEOUT '0s')
<time> 1 11

# What is left over comes together with what is ready behind it.

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

# FETCH ALL with a TIMEOUT waits all of it, so that nothing that came is missed.

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

# A stream that has ended gives no rows, at once.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (VALUES (1), (2), (3))

> FETCH 2 c
18446744073709551615 1 1
18446744073709551615 1 2

> FETCH 2 c
18446744073709551615 1 3

> FETCH 2 c

> FETCH ALL c WITH (TIMEOUT '1h')

# A cursor that exists, one that is closed.

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

# Several cursors stand side by side. Each SUBSCRIBE needs an AS OF then; queries without a relation do not count.

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
