# SUBSCRIBE in a transaction block must be the only statement that reads or writes, unless it has an AS OF.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

$ set-from-sql var=now
SELECT mz_now()

$ set-regex match=\b\d{13}\b replacement=<time>

# After a SUBSCRIBE, no other statement may read or write.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH 1 c
<time> 1 1

! SELECT * FROM t
exact:SUBSCRIBE in transactions must be the only read statement
hint:Execute SELECT in another transaction or session, or give SUBSCRIBE a time with AS OF.

> ROLLBACK

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH 0 c

! INSERT INTO t VALUES (2)
exact:SUBSCRIBE in transactions must be the only read statement

> ROLLBACK

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> DECLARE d CURSOR FOR SUBSCRIBE t

> FETCH 0 c

! FETCH 0 d
exact:SUBSCRIBE in transactions must be the only read statement

> ROLLBACK

# Statements that read no relation are allowed.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH 1 c
<time> 1 1

> SELECT 1
1

> COMMIT

# SUBSCRIBE is refused in a transaction that has read or written.

> BEGIN

> SELECT * FROM t
1

! SUBSCRIBE t
exact:transaction in read-only mode
detail:SUBSCRIBE without AS OF must be the only statement of its transaction that reads or writes.
hint:Execute SUBSCRIBE after COMMIT, or give it a time with AS OF.

> ROLLBACK

> BEGIN

> INSERT INTO t VALUES (2)

! SUBSCRIBE t
exact:transaction in write-only mode
hint:Execute SUBSCRIBE after COMMIT, or give it a time with AS OF.

> ROLLBACK

> BEGIN

> CREATE TABLE u (a int)

! SUBSCRIBE t
exact:this transaction can only execute a single statement
hint:Execute SUBSCRIBE after COMMIT, or give it a time with AS OF.

> ROLLBACK

# With AS OF, none of these restrictions applies.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF AT LEAST ${now}

> DECLARE d CURSOR FOR SUBSCRIBE t ENVELOPE UPSERT (KEY (a)) AS OF AT LEAST ${now}

> FETCH 1 c
<time> 1 1

> FETCH 1 d
<time> upsert 1

> SELECT * FROM t
1

> COMMIT

> BEGIN

> INSERT INTO t VALUES (2)

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF AT LEAST ${now}

> FETCH 1 c
<time> 1 1

> SELECT * FROM t AS OF AT LEAST ${now}
1

> COMMIT

# COMMIT and ROLLBACK end the subscription and close its cursor.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH 0 c

> COMMIT

! FETCH 1 c
exact:cursor "c" does not exist

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t

> FETCH 1 c
<time> 1 1

> ROLLBACK

! FETCH 1 c
exact:cursor "c" does not exist
