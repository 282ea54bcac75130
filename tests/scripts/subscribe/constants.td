# A constant relation: its rows have the greatest timestamp, and the stream ends.

> SUBSCRIBE (SELECT 1 AS a)
18446744073709551615 1 1

# Equal rows are sent as one row with their count.

> SUBSCRIBE (VALUES (1), (1), (2))
18446744073709551615 2 1
18446744073709551615 1 2

# AS OF does not change that timestamp.

> SUBSCRIBE (SELECT 1 AS a) AS OF 42
18446744073709551615 1 1

> SUBSCRIBE (SELECT 1 AS a) AS OF AT LEAST 42
18446744073709551615 1 1

# One progress row at that timestamp, then the rows.

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS)

> FETCH 1 c
18446744073709551615 true <null> <null>

> FETCH 1 c
18446744073709551615 false 1 1

> FETCH ALL c

> COMMIT

# Without the snapshot, the stream is empty.

> SUBSCRIBE (SELECT 1 AS a) WITH (SNAPSHOT false)

> SUBSCRIBE (SELECT 1 AS a) WITH (SNAPSHOT false, PROGRESS)
18446744073709551615 true <null> <null>

# UP TO is compared with that timestamp, whatever AS OF says.

! SUBSCRIBE (SELECT 1 AS a) UP TO 5
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): 18446744073709551615 > 5

! SUBSCRIBE (SELECT 1 AS a) AS OF 10 UP TO 5
exact:subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): 18446744073709551615 > 5

> SUBSCRIBE (SELECT 1 AS a) UP TO 18446744073709551615

# Envelopes are applied as at any other timestamp.

> SUBSCRIBE (VALUES (1, 'a'), (2, 'b'), (2, 'c')) ENVELOPE DEBEZIUM (KEY (column1))
mz_timestamp mz_state column1 before_column2 after_column2
----
18446744073709551615 insert 1 <null> a
18446744073709551615 key_violation 2 <null> <null>
