# WITH (PROGRESS): a row with mz_progressed true at t means that all updates at times less than t have been sent.

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

# The transaction of another session keeps the times that it has read readable.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT * FROM t

$ set-from-sql var=now
SELECT mz_now()

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS) AS OF ${now}

# The first row has the time of AS OF and precedes the snapshot.

> FETCH 1 c
mz_timestamp mz_progressed mz_diff a
----
${now} true <null> <null>

> FETCH 1 c
${now} false 1 1

# The next progress row has a later time: the snapshot is complete. FETCH counts progress rows.

$ set-regex match=\b\d{13}\b replacement=<later>

> FETCH 1 c
<later> true <null> <null>

# Progress rows are also sent if there are no changes.

> FETCH 1 c
<later> true <null> <null>

> FETCH 1 c
<later> true <null> <null>

> COMMIT

# An empty snapshot consists of progress rows only.

> CREATE TABLE empty (a int)

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE empty WITH (PROGRESS)

> FETCH 2 c WITH (TIMEOUT '10s')
<later> true <null> <null>
<later> true <null> <null>

> COMMIT

# Without the snapshot, the first row also has the time of AS OF.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false)

> FETCH 2 c WITH (TIMEOUT '10s')
<later> true <null> <null>
<later> true <null> <null>

> COMMIT

# A bounded stream has no final progress row. Its last row may be data.

$ unset-regex

$ set-from-sql var=now
SELECT mz_now()

> SUBSCRIBE t WITH (PROGRESS) AS OF ${now} UP TO ${now} + 1
${now} true <null> <null>
${now} false 1 1

> SUBSCRIBE t WITH (PROGRESS, SNAPSHOT false) AS OF ${now} UP TO ${now} + 1
${now} true <null> <null>
