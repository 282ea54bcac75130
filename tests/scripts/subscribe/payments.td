# Accounts and payments, sent to another system with old and new values: ENVELOPE DEBEZIUM over tables, views and keys
# of several columns.

$ set-sql-timeout duration=60s

$ set-regex match=\b\d{13}\b replacement=<time>

> CREATE TABLE accounts (bank text NOT NULL, number int NOT NULL, owner text, balance numeric(12,2) NOT NULL)

> CREATE TABLE payments (id int NOT NULL, debit int NOT NULL, credit int NOT NULL, amount numeric(12,2) NOT NULL)

> INSERT INTO accounts VALUES ('north', 1, 'Ada', 100.00), ('north', 2, 'Grace', 50.00), ('south', 1, NULL, 0.00)

> BEGIN

> DECLARE feed CURSOR FOR SUBSCRIBE accounts ENVELOPE DEBEZIUM (KEY (number, bank))

# The key columns come first, in the order of the clause, then the old and the new values.

> FETCH 1 feed
mz_timestamp  mz_state  number  bank  before_owner  before_balance  after_owner  after_balance
----
<time>  insert  1  north  <null>  <null>  Ada  100.00

> FETCH 1 feed
<time>  insert  1  south  <null>  <null>  <null>  0.00

> FETCH 1 feed
<time>  insert  2  north  <null>  <null>  Grace  50.00

# A payment: two accounts and the payment change in one transaction, at one timestamp.

$ postgres-execute connection=${testdrive.url}
BEGIN
UPDATE accounts SET balance = balance + CASE number WHEN 1 THEN -30.00 ELSE 30.00 END WHERE bank = 'north'
INSERT INTO payments VALUES (1, 1, 2, 30.00)
COMMIT

> FETCH 2 feed
<time>  upsert  1  north  Ada    100.00  Ada    70.00
<time>  upsert  2  north  Grace  50.00   Grace  80.00

# A rolled back transaction produces no rows. Rows that an UPDATE leaves unchanged produce none either.

$ postgres-execute connection=${testdrive.url}
BEGIN
UPDATE accounts SET balance = 0
ROLLBACK
UPDATE accounts SET owner = CASE bank WHEN 'south' THEN 'Edsger' ELSE owner END

> FETCH 1 feed
<time>  upsert  1  south  <null>  0.00  Edsger  0.00

# An account moves to another bank: a delete of the old key and an insert of the new key.

$ postgres-execute connection=${testdrive.url}
UPDATE accounts SET bank = 'west' WHERE bank = 'south'

> FETCH 2 feed
<time>  delete  1  south  Edsger  0.00    <null>  <null>
<time>  insert  1  west   <null>  <null>  Edsger  0.00

# An account is closed, and another is opened with the same key.

$ postgres-execute connection=${testdrive.url}
DELETE FROM accounts WHERE bank = 'north' AND number = 1
INSERT INTO accounts VALUES ('north', 1, 'Barbara', 5.00)

> FETCH 1 feed
<time>  delete  1  north  Ada  70.00  <null>  <null>

> FETCH 1 feed
<time>  insert  1  north  <null>  <null>  Barbara  5.00

> COMMIT

# A view over both tables: the sum of payments per payer and payee, at one timestamp.

> CREATE VIEW flows AS
  SELECT d.owner AS payer, c.owner AS payee, sum(p.amount) AS amount
  FROM payments AS p
  JOIN accounts AS d ON d.bank = 'north' AND d.number = p.debit
  JOIN accounts AS c ON c.bank = 'north' AND c.number = p.credit
  GROUP BY d.owner, c.owner

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT count(*) FROM payments

$ set-from-sql var=now
SELECT mz_now()

> SUBSCRIBE flows ENVELOPE DEBEZIUM (KEY (payee, payer)) WITH (PROGRESS) AS OF ${now} UP TO ${now} + 1
<time>  true   <null>  <null>  <null>   <null>  <null>
<time>  false  insert  Grace   Barbara  <null>  30.00

# Dropping a table ends the stream of a view over it with an error.

> BEGIN

> DECLARE feed CURSOR FOR SUBSCRIBE flows ENVELOPE DEBEZIUM (KEY (payer, payee))

> FETCH 1 feed
<time>  insert  Barbara  Grace  <null>  30.00

$ postgres-execute connection=${testdrive.url}
INSERT INTO payments VALUES (2, 1, 2, 1.50), (3, 1, 2, 0.25)

> FETCH 1 feed
<time>  upsert  Barbara  Grace  30.00  31.75

$ postgres-execute connection=${testdrive.url}
DROP TABLE payments CASCADE

! FETCH 1 feed
regex:relation '\w+\.public\.payments' was dropped

> ROLLBACK

! SELECT * FROM flows
contains:relation "flows" does not exist
