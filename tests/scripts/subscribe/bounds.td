# Bounds of a stream: AS OF (inclusive), AS OF AT LEAST, UP TO (exclusive).

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

# The transaction of another session keeps the times that it has read readable.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT * FROM t

$ set-from-sql var=one
SELECT mz_now()

# Later changes have later times than a query before them, so that this bound excludes them.

$ set-from-sql var=next
SELECT (${one} + 1)::text

> INSERT INTO t VALUES (2)

$ set-from-sql var=two
SELECT mz_now()

> INSERT INTO t VALUES (3)

$ set-from-sql var=three
SELECT mz_now()

# AS OF t: the contents at t, with timestamp t, then each change at its own timestamp. A bounded stream ends by itself.

> SUBSCRIBE t AS OF ${one} UP TO ${one} + 1
mz_timestamp mz_diff a
----
${one} 1 1

> SUBSCRIBE t AS OF ${two} UP TO ${two} + 1
${two} 1 1
${two} 1 2

> SUBSCRIBE t AS OF ${three} UP TO ${three} + 1
${three} 1 1
${three} 1 2
${three} 1 3

$ set-regex match=\b\d{13}\b replacement=<time>

> SUBSCRIBE t AS OF ${one} UP TO ${three} + 1
<time> 1 1
<time> 1 2
<time> 1 3

# SNAPSHOT false omits all rows at the time of AS OF. A stream with it resumes where another stream ended.

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${one} UP TO ${three} + 1
<time> 1 2
<time> 1 3

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${two} UP TO ${three} + 1
<time> 1 3

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${three} UP TO ${three} + 1

# UP TO is exclusive.

> SUBSCRIBE t AS OF ${one} UP TO ${next}
<time> 1 1

# A bound is a constant of any type that can be cast to a timestamp: integers, numerics, texts, dates and timestamps.

> SUBSCRIBE t AS OF ${one}::int8 UP TO ${one}::numeric + 1
<time> 1 1

> SUBSCRIBE t AS OF '${one}' UP TO '${next}'::text
<time> 1 1

> SUBSCRIBE t AS OF AT LEAST '1999-12-31'::date UP TO '1970-01-01 00:00:00 UTC'::timestamptz + interval '${next} ms'
<time> 1 1

> SUBSCRIBE t AS OF AT LEAST timestamp '2000-01-01' UP TO ${next}
<time> 1 1

# AS OF AT LEAST t: the later of t and the earliest readable time.

> SUBSCRIBE t AS OF AT LEAST ${three} UP TO ${three} + 1
<time> 1 1
<time> 1 2
<time> 1 3

> SUBSCRIBE t AS OF AT LEAST 0 UP TO ${next}
<time> 1 1

# AS OF a time that is no longer readable.

! SUBSCRIBE t AS OF 1
exact:could not find a valid timestamp for the query
detail:(Query's AS OF): [1 (1970-01-01 00:00:00.001)]

# The lower bound is greater than the upper bound.

$ unset-regex

! SUBSCRIBE t AS OF 18446744073709551615 UP TO 5
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): 18446744073709551615 > 5

! SUBSCRIBE t AS OF ${two} UP TO ${one}
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): ${two} > ${one}

! SUBSCRIBE t UP TO 5
regex:subscription lower bound \(`AS OF`\) is greater than its upper bound \(`UP TO`\): \d{13} > 5

# Equal bounds give an empty stream and a notice (see direct.pt).

> SUBSCRIBE t AS OF ${one} UP TO ${one}

# AS OF a future time: the stream waits for that time and begins with the contents at it.

$ set-from-sql var=soon
SELECT (${three} + 700)::text

> SUBSCRIBE t AS OF ${soon} UP TO ${soon} + 1
${soon} 1 1
${soon} 1 2
${soon} 1 3

# A time that is never reached.

$ set-sql-timeout duration=300ms force

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF 18446744073709551615

! FETCH 1 c
timeout

> ROLLBACK

$ set-sql-timeout duration=default

# The first FETCH checks the bounds. DECLARE does not.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF 1

! FETCH 0 c
contains:could not find a valid timestamp for the query

> ROLLBACK
