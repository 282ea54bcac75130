# SUBSCRIBE through a cursor: snapshot, changes, SNAPSHOT false, UP TO.

> CREATE TABLE t (a int, b text)

> INSERT INTO t VALUES (1, 'one'), (1, 'one'), (2, 'two')

$ set-regex match=\d{13} replacement=<number>

> BEGIN

> DECLARE c CURSOR FOR SUBSCRIBE (SELECT a, b FROM t)

# Equal rows are returned as one row with their count.

> FETCH 2 c WITH (TIMEOUT '10s')
<number> 2 1 one
<number> 1 2 two

> COMMIT
