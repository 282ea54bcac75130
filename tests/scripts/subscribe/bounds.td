# From when to when: AS OF (inclusive), AS OF AT LEAST, UP TO (exclusive).

> CREATE TABLE t (a int)

> INSERT INTO t VALUES (1)

# A transaction that has read keeps what it has seen readable for others.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT * FROM t

$ set-from-sql var=one
SELECT mz_now()

> INSERT INTO t VALUES (2)

$ set-from-sql var=two
SELECT mz_now()

> INSERT INTO t VALUES (3)

$ set-from-sql var=three
SELECT mz_now()

# AS OF t: what there was at t, stamped t; then each change at its own time. A bounded stream ends by itself.

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

# SNAPSHOT false leaves out all that is stamped with the time of AS OF, and so resumes where another stream stopped.

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${one} UP TO ${three} + 1
<time> 1 2
<time> 1 3

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${two} UP TO ${three} + 1
<time> 1 3

> SUBSCRIBE t WITH (SNAPSHOT false) AS OF ${three} UP TO ${three} + 1

# UP TO is exclusive.

> SUBSCRIBE t AS OF ${one} UP TO ${two}
<time> 1 1

# A time is a constant of any type that becomes one: whole numbers, numerics, text, dates and times.

> SUBSCRIBE t AS OF ${one}::int8 UP TO ${one}::numeric + 1
<time> 1 1

> SUBSCRIBE t AS OF '${one}' UP TO '${two}'::text
<time> 1 1

> SUBSCRIBE t AS OF AT LEAST '1999-12-31'::date UP TO '1970-01-01 00:00:00 UTC'::timestamptz + interval '${two} ms'
<time> 1 1

> SUBSCRIBE t AS OF AT LEAST timestamp '2000-01-01' UP TO ${two}
<time> 1 1

# AS OF AT LEAST t: at t, or at the earliest time that can be read, whichever is later.

> SUBSCRIBE t AS OF AT LEAST ${three} UP TO ${three} + 1
<time> 1 1
<time> 1 2
<time> 1 3

> SUBSCRIBE t AS OF AT LEAST 0 UP TO ${two}
<time> 1 1

# AS OF a time that cannot be read any more.

! SUBSCRIBE t AS OF 1
exact:could not find a valid timestamp for the query
detail:(Query's AS OF): [1 (1970-01-01 00:00:00.001)]

# The bounds the wrong way round.

$ unset-regex

! SUBSCRIBE t AS OF 18446744073709551615 UP TO 5
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): 18446744073709551615 > 5

! SUBSCRIBE t AS OF ${two} UP TO ${one}
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): ${two} > ${one}

! SUBSCRIBE t UP TO 5
regex:subscription lower bound \(`AS OF`\) is greater than its upper bound \(`UP TO`\): \d{13} > 5

# Equal bounds give nothing, and a notice that says so (see direct.pt).

> SUBSCRIBE t AS OF ${one} UP TO ${one}

# AS OF a time to come: the stream waits for it, and begins with what there is then.

$ set-from-sql var=soon
SELECT (${three} + 700)::text

> SUBSCRIBE t AS OF ${soon} UP TO ${soon} + 1
${soon} 1 1
${soon} 1 2
${soon} 1 3

# One that does not come.

$ set-sql-timeout duration=300ms force

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF 18446744073709551615

! FETCH 1 c
timeout

> ROLLBACK

$ set-sql-timeout duration=default

# Bounds are looked at by the first FETCH, not by DECLARE.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE t AS OF 1

! FETCH 0 c
contains:could not find a valid timestamp for the query

> ROLLBACK
