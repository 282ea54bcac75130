# SUBSCRIBE [TO] { name | ( query ) } [ output ] [ WITH ( ... ) ] [ AS OF [AT LEAST] time ] [ UP TO time ] [ output ]
# The stream of a constant relation ends immediately, so each form is tested as a single statement.

$ set-regex match=18446744073709551615 replacement=<end>

> SUBSCRIBE (SELECT 1 AS a, 2 AS b)
mz_timestamp mz_diff a b
----
<end> 1 1 2

> SUBSCRIBE TO (VALUES (1), (2))
<end> 1 1
<end> 1 2

# Options: a name without a value means true. The equals sign is optional.

> SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS)
mz_timestamp mz_progressed mz_diff a
----
<end> true <null> <null>
<end> false 1 1

> SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS = true, SNAPSHOT = true)
<end> true <null> <null>
<end> false 1 1

> SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS false, SNAPSHOT true)
<end> 1 1

> SUBSCRIBE (SELECT 1 AS a) WITH (SNAPSHOT false)

> SUBSCRIBE (SELECT 1 AS a) WITH (SNAPSHOT = false, PROGRESS)
<end> true <null> <null>

# The output clause follows the relation or ends the statement. It may occur once.

> SUBSCRIBE (SELECT 1 AS a, 2 AS b) ENVELOPE UPSERT (KEY (a)) WITH (SNAPSHOT)
mz_timestamp mz_state a b
----
<end> upsert 1 2

> SUBSCRIBE (SELECT 1 AS a, 2 AS b) WITH (SNAPSHOT) ENVELOPE UPSERT (KEY (a))
<end> upsert 1 2

> SUBSCRIBE (SELECT 1 AS a, 2 AS b) AS OF 1 ENVELOPE DEBEZIUM (KEY (a))
<end> insert 1 <null> 2

> SUBSCRIBE (SELECT 1 AS a, 2 AS b) WITHIN TIMESTAMP ORDER BY b, a DESC NULLS LAST WITH (PROGRESS false) AS OF AT LEAST 1
<end> 1 1 2

> SUBSCRIBE (SELECT 1 AS a, 2 AS b) AS OF AT LEAST 1 WITHIN TIMESTAMP ORDER BY 1, 2
<end> 1 1 2

! SUBSCRIBE (SELECT 1 AS a) ENVELOPE UPSERT (KEY (a)) WITHIN TIMESTAMP ORDER BY a
exact:Expected end of statement, found WITHIN

! SUBSCRIBE (SELECT 1 AS a) WITHIN TIMESTAMP ORDER BY a ENVELOPE UPSERT (KEY (a))
exact:Expected end of statement, found ENVELOPE

! SUBSCRIBE (SELECT 1 AS a) ENVELOPE UPSERT (KEY (a)) AS OF 1 ENVELOPE DEBEZIUM (KEY (a))
exact:Expected end of statement, found ENVELOPE

! SUBSCRIBE (SELECT 1 AS a) AS OF 1 WITHIN TIMESTAMP ORDER BY a AS OF 2
exact:Expected end of statement, found AS

! SUBSCRIBE (SELECT 1 AS a) AS OF 1 ENVELOPE UPSERT (KEY (a)) UP TO 2
exact:Expected end of statement, found UP

! SUBSCRIBE (SELECT 1 AS a) UP TO 5 AS OF 1
exact:Expected end of statement, found AS

# Other syntax errors.

! SUBSCRIBE (SELECT 1 AS a) WITH (FRONTIER)
exact:Expected one of PROGRESS or SNAPSHOT, found identifier "frontier"

! SUBSCRIBE (SELECT 1 AS a) WITH ()
exact:Expected one of PROGRESS or SNAPSHOT, found right parenthesis

! SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS, PROGRESS false)
exact:PROGRESS specified more than once

! SUBSCRIBE (SELECT 1 AS a) WITH (SNAPSHOT = maybe)
exact:invalid SNAPSHOT: cannot use value as boolean

! SUBSCRIBE (SELECT 1 AS a) ENVELOPE NONE
exact:Expected one of UPSERT or DEBEZIUM, found NONE

! SUBSCRIBE (SELECT 1 AS a) ENVELOPE UPSERT KEY (a)
exact:Expected left parenthesis, found KEY

! SUBSCRIBE (SELECT 1 AS a) AS OF
exact:Expected a timestamp value after 'AS OF', found EOF

! SUBSCRIBE (SELECT 1 AS a) AS OF;
exact:Expected a timestamp value after 'AS OF', found EOF

! SUBSCRIBE (SELECT 1 AS a) AS OF AT LEAST
exact:Expected a timestamp value after 'AS OF AT LEAST', found EOF

! SUBSCRIBE (SELECT 1 AS a
exact:Expected right parenthesis, found EOF
