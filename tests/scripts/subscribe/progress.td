# WITH (PROGRESS): a row with mz_progressed true at t says that all times before t are final.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

# A transaction that has read keeps what it has seen readable for others.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT * FROM t

$ set-from-sql var=now
SELECT mz_now()

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS) AS OF ${now}

# The first row stands at the AS OF, before the snapshot.

> FETCH 1 c
mz_timestamp mz_progressed mz_diff a
----
${now} true <null> <null>

> FETCH 1 c
${now} false 1 1

# The next one is at a later time: the snapshot is complete. Progress rows count as rows.

$ set-regex match=\b\d{13}\b replacement=<later>

> FETCH 1 c
<later> true <null> <null>

# They come without any change, too.

> FETCH 1 c
<later> true <null> <null>

> FETCH 1 c
<later> true <null> <null>

> COMMIT

# An empty snapshot shows by its progress alone.

> CREATE TABLE empty (a int)

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE empty WITH (PROGRESS)

> FETCH 2 c WITH (TIMEOUT '10s')
<later> true <null> <null>
<later> true <null> <null>

> COMMIT

# Without the snapshot the first row still stands at the AS OF.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false)

> FETCH 2 c WITH (TIMEOUT '10s')
<later> true <null> <null>
<later> true <null> <null>

> COMMIT

# A stream that ends says nothing about its end: its last row may be data.

$ unset-regex

$ set-from-sql var=now
SELECT mz_now()

> SUBSCRIBE t WITH (PROGRESS) AS OF ${now} UP TO ${now} + 1
${now} true <null> <null>
${now} false 1 1

> SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false) AS OF ${now} UP TO ${now} + 1
${now} true <null> <null>
