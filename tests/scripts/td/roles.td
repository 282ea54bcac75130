# Roles and privileges, in one session that changes its role by SET ROLE.

> CREATE TABLE t (k int, v text)

> INSERT INTO t VALUES (1, 'a')

> CREATE ROLE td_readers

> CREATE USER td_alice IN ROLE td_readers

> SET ROLE td_alice

! SELECT * FROM t
exact:permission denied for table t

! SUBSCRIBE t
exact:permission denied for table t

! DROP TABLE t
exact:must be owner of table t

! CREATE TABLE u (k int)
exact:permission denied for schema public

> RESET ROLE

> GRANT SELECT ON t TO td_readers

> SET ROLE td_alice

> SELECT * FROM t
1 a

! INSERT INTO t VALUES (2, 'b')
exact:permission denied for table t

> SELECT has_table_privilege('t', 'SELECT'), has_table_privilege('t', 'INSERT')
true false

> RESET ROLE

# A view is read with the privileges of its owner.

> CREATE VIEW v AS SELECT v FROM t

> REVOKE ALL ON t FROM td_readers

> GRANT SELECT ON v TO td_alice

> SET ROLE td_alice

> SELECT * FROM v
a

! SELECT * FROM t
exact:permission denied for table t

> RESET ROLE

! DROP ROLE td_alice
contains:cannot be dropped because some objects depend on it

> DROP OWNED BY td_alice

> DROP ROLE td_alice, td_readers
