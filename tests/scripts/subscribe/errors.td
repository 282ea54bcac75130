# Errors of planning.

> CREATE TABLE t (a int, b text)

> CREATE VIEW twice AS SELECT a, b AS a1 FROM t

> CREATE INDEX i ON t (a)

! SUBSCRIBE missing
exact:relation "missing" does not exist

! SUBSCRIBE i
regex:'.*\.public\.i' cannot be subscribed to because it is an index

! SUBSCRIBE (SELECT missing FROM t)
exact:column "missing" does not exist

# Keys are distinct, unambiguous columns of the relation.

! SUBSCRIBE t ENVELOPE UPSERT (KEY (missing))
exact:column "missing" does not exist

! SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (a, missing))
exact:column "missing" does not exist

! SUBSCRIBE t ENVELOPE UPSERT (KEY (mz_diff))
exact:column "mz_diff" does not exist

! SUBSCRIBE (SELECT a AS c, b AS c FROM t) ENVELOPE UPSERT (KEY (c))
exact:column reference "c" is ambiguous

! SUBSCRIBE t ENVELOPE UPSERT (KEY (a, b, a))
exact:invalid keys in SUBSCRIBE ENVELOPE UPSERT (KEY (..))
detail:Column "a" is named more than once.

! SUBSCRIBE t ENVELOPE DEBEZIUM (KEY (a, b, a))
contains:invalid keys in SUBSCRIBE ENVELOPE DEBEZIUM (KEY (..))

# Numbers and expressions cannot be keys.

! SUBSCRIBE t ENVELOPE UPSERT (KEY (1))
contains:syntax error

! SUBSCRIBE t ENVELOPE UPSERT (KEY (a + 1))
exact:Expected right parenthesis, found operator "+"

! SUBSCRIBE t ENVELOPE UPSERT (KEY ())
contains:syntax error

# WITHIN TIMESTAMP ORDER BY can refer to the relation's columns and mz_diff only.

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY missing
exact:column "missing" does not exist

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY mz_timestamp
exact:column "mz_timestamp" does not exist

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY u.a
exact:missing FROM-clause entry for table "u"

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY changes.a
exact:missing FROM-clause entry for table "changes"

! SUBSCRIBE (SELECT a FROM t) WITHIN TIMESTAMP ORDER BY t.a
exact:missing FROM-clause entry for table "t"

! SUBSCRIBE (SELECT a AS c, b AS c FROM t) WITHIN TIMESTAMP ORDER BY c
exact:column reference "c" is ambiguous

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY 4
exact:ORDER BY position 4 is not in select list

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY 0
exact:ORDER BY position 0 is not in select list

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY -1
exact:ORDER BY position -1 is not in select list

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY 'a'
exact:non-integer constant in ORDER BY

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY *
exact:syntax error at or near "*"

# Ordering expressions are computed per row: aggregates, set-returning functions, subqueries over relations and
# functions that depend on the time are refused.

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY max(a)
exact:aggregate functions are not allowed in WITHIN TIMESTAMP ORDER BY

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY generate_series(1, a)
exact:set-returning functions are not allowed in WITHIN TIMESTAMP ORDER BY

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY (SELECT max(a) FROM t)
exact:subqueries cannot read relations in WITHIN TIMESTAMP ORDER BY

! SUBSCRIBE t WITHIN TIMESTAMP ORDER BY now()
exact:cannot materialize call to now()

# If two columns have the same name, numbers identify them: SUBSCRIBE (...) WITHIN TIMESTAMP ORDER BY 2, 3.

> SUBSCRIBE (SELECT 1 AS c, 2 AS c) WITHIN TIMESTAMP ORDER BY 2, 3
18446744073709551615 1 1 2

# A bound is a constant whose value is an integer from 0 to 18446744073709551615, not NULL.

! SUBSCRIBE t AS OF NULL
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value
hint:Write milliseconds since 1970, or a timestamp such as '2026-01-31 12:00:00'.

! SUBSCRIBE t AS OF -1
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value
hint:Write milliseconds since 1970, or a timestamp such as '2026-01-31 12:00:00'.

! SUBSCRIBE t AS OF 1.5
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t UP TO 1E38
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t UP TO 18446744073709551616
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t AS OF 'xxx'
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t AS OF AT LEAST 7 / 0
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t UP TO -1
exact:AS OF or UP TO should be castable to a (non-null) mz_timestamp value

! SUBSCRIBE t AS OF now()
exact:calling an unmaterializable function in AS OF or UP TO not yet supported

! SUBSCRIBE t UP TO mz_now()
exact:calling an unmaterializable function in AS OF or UP TO not yet supported

! SUBSCRIBE t AS OF current_database()
exact:calling an unmaterializable function in AS OF or UP TO not yet supported

! SUBSCRIBE t AS OF ARRAY[1]
exact:AS OF or UP TO does not support casting from integer[] to mz_timestamp

! SUBSCRIBE t AS OF true
exact:AS OF or UP TO does not support casting from boolean to mz_timestamp

! SUBSCRIBE t AS OF a
exact:column "a" does not exist

! SUBSCRIBE t AS OF max(1)
exact:aggregate functions are not allowed in AS OF or UP TO

! SUBSCRIBE t AS OF (SELECT max(a) FROM t)
exact:AS OF or UP TO does not allow subqueries

# A parameter is not a constant.

! SUBSCRIBE t AS OF $1
exact:there is no parameter $1
hint:Write it as a constant in the statement: parameters are not possible here.

! SUBSCRIBE t UP TO $1
exact:there is no parameter $1
