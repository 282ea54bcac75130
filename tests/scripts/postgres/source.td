# A PostgreSQL source: a snapshot of the tables of a publication, and then each transaction at one timestamp.

$ postgres-connect name=upstream url=${arg.upstream}

$ postgres-execute connection=upstream
CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance numeric(10, 2) NOT NULL)
CREATE TABLE transfers (id int PRIMARY KEY, account int, amount numeric(10, 2), at timestamptz)
INSERT INTO accounts VALUES (1, 'Ada', 100), (2, 'Blaise', 50), (3, NULL, 0)
INSERT INTO transfers VALUES (1, 1, 100, '2024-01-01 00:00:00+00'), (9, 9, 0, '-infinity')
CREATE PUBLICATION shop FOR TABLE accounts, transfers

> CREATE SECRET password AS 'unused'

> CREATE CONNECTION pg TO POSTGRES (HOST '${arg.host}', PORT ${arg.port}, DATABASE '${arg.database}', USER postgres, PASSWORD SECRET password)

> CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'shop') FOR TABLES (accounts, transfers AS moves)

> SELECT id, owner, balance FROM accounts
1 Ada 100.00
2 Blaise 50.00
3 <null> 0.00

> SELECT id, account, amount, at FROM moves
1 1 100.00 "2024-01-01 00:00:00 UTC"
9 9 0.00 -infinity

# A transaction over both tables: a subscriber sees its changes at one timestamp.
> BEGIN

> DECLARE changes CURSOR FOR SUBSCRIBE
  (SELECT a.id, a.balance, m.amount FROM accounts a JOIN moves m ON a.id = m.account) WITH (SNAPSHOT = false)

$ postgres-execute connection=upstream
BEGIN
UPDATE accounts SET balance = balance + 20 WHERE id = 2
UPDATE accounts SET id = 4 WHERE id = 3
INSERT INTO transfers VALUES (2, 2, 20, 'infinity')
DELETE FROM transfers WHERE id = 1
COMMIT

$ set-regex match="\d{13}" replacement=<time>

> FETCH 2 changes WITH (timeout = '60s')
<time> -1 1 100.00 100.00
<time> 1 2 70.00 20.00

> COMMIT

> SELECT id, owner, balance FROM accounts
1 Ada 100.00
2 Blaise 70.00
4 <null> 0.00

> SELECT id, account, amount, at FROM moves
2 2 20.00 infinity
9 9 0.00 -infinity

# What is rolled back does not appear.
$ postgres-execute connection=upstream
BEGIN
DELETE FROM accounts
ROLLBACK
INSERT INTO accounts VALUES (5, 'Carl', 1.5)

> SELECT id, owner, balance FROM accounts
1 Ada 100.00
2 Blaise 70.00
4 <null> 0.00
5 Carl 1.50

# Columns that are added upstream are ignored. TRUNCATE empties a table.
$ postgres-execute connection=upstream
ALTER TABLE accounts ADD COLUMN note text
UPDATE accounts SET note = 'new' WHERE id = 5
TRUNCATE transfers

> SELECT * FROM accounts WHERE id = 5
5 Carl 1.50

> SELECT count(*) FROM moves
0

# An incompatible change stops this table alone.
$ postgres-execute connection=upstream
ALTER TABLE transfers DROP COLUMN amount
INSERT INTO transfers VALUES (3, 1, now())
UPDATE accounts SET balance = 2 WHERE id = 5

> SELECT name, status FROM mz_internal.mz_source_statuses WHERE name IN ('accounts', 'moves')
accounts running
moves failed

> SELECT balance FROM accounts WHERE id = 5
2.00

# A table from the source, and its end: the slot is removed.
> CREATE TABLE people (id, name, balance, note) FROM SOURCE shop (REFERENCE public.accounts)

> SELECT name, note FROM people WHERE id = 5
Carl new

! INSERT INTO accounts VALUES (9, 'x', 1)
contains:cannot insert into

! CREATE SOURCE other FROM POSTGRES CONNECTION pg (PUBLICATION 'missing') FOR ALL TABLES
contains:missing

> DROP SOURCE shop CASCADE

! SELECT * FROM accounts
contains:relation "accounts" does not exist
