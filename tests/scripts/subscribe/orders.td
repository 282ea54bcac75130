# A shop: a cache of orders by id, maintained with ENVELOPE UPSERT, resumes after its process has ended.

$ set-sql-timeout duration=60s

> CREATE TABLE customers (id int NOT NULL, name text NOT NULL)

> CREATE TABLE orders (id int NOT NULL, customer_id int NOT NULL, status text NOT NULL)

> CREATE TABLE order_items (order_id int NOT NULL, product text NOT NULL, quantity int NOT NULL, price numeric(10,2) NOT NULL)

> CREATE VIEW order_totals AS
  SELECT o.id, c.name AS customer, o.status, sum(i.quantity * i.price) AS total, count(*) AS items
  FROM orders AS o
  JOIN customers AS c ON c.id = o.customer_id
  JOIN order_items AS i ON i.order_id = o.id
  GROUP BY o.id, c.name, o.status

> INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace')

> INSERT INTO orders VALUES (100, 1, 'open'), (101, 2, 'paid')

> INSERT INTO order_items VALUES (100, 'tea', 2, 4.50), (100, 'cup', 1, 12.00), (101, 'pot', 1, 39.90)

# Retains history for the cache. A hold or RETAIN HISTORY would have the same effect.

$ postgres-connect name=keeper url=${testdrive.url}

$ postgres-execute connection=keeper
BEGIN
SELECT count(*) FROM orders

$ set-from-sql var=start
SELECT mz_now()

# The cache reads the snapshot. The first row is the progress at AS OF. The second progress row follows the snapshot.

> BEGIN

> DECLARE cache CURSOR FOR SUBSCRIBE order_totals ENVELOPE UPSERT (KEY (id)) WITH (PROGRESS) AS OF ${start}

> FETCH 1 cache
mz_timestamp  mz_progressed  mz_state  id  customer  status  total  items
----
${start}  true  <null>  <null>  <null>  <null>  <null>  <null>

> FETCH 2 cache
${start}  false  upsert  100  Ada    open  21.00  2
${start}  false  upsert  101  Grace  paid  39.90  1

$ set-regex match=\b\d{13}\b replacement=<time>

> FETCH 1 cache
<time>  true  <null>  <null>  <null>  <null>  <null>  <null>

> COMMIT

$ unset-regex

# The cache ends after storing the time up to which it is complete. Before it resumes, an order is placed in one
# transaction, another is changed twice, and a third is deleted.

$ set-from-sql var=stored
SELECT mz_now()

$ postgres-execute connection=${testdrive.url}
BEGIN
INSERT INTO orders VALUES (102, 1, 'open')
INSERT INTO order_items VALUES (102, 'tea', 10, 4.50), (102, 'tin', 1, 7.25)
COMMIT
UPDATE orders SET status = 'paid' WHERE id = 100
UPDATE orders SET status = 'sent' WHERE id = 100
DELETE FROM orders WHERE id = 101

# AS OF the stored time, without the snapshot: the missed changes, each commit at its own timestamp.

> BEGIN

> DECLARE cache CURSOR FOR SUBSCRIBE order_totals ENVELOPE UPSERT (KEY (id)) WITH (SNAPSHOT false) AS OF ${stored}

$ set-regex match=\b\d{13}\b replacement=<time>

> FETCH 1 cache
<time>  upsert  102  Ada  open  52.25  2

> FETCH 1 cache
<time>  upsert  100  Ada  paid  21.00  2

> FETCH 1 cache
<time>  upsert  100  Ada  sent  21.00  2

> FETCH 1 cache
<time>  delete  101  <null>  <null>  <null>  <null>

# A customer's name changes: all orders of the customer change at the same timestamp.

$ postgres-execute connection=${testdrive.url}
UPDATE customers SET name = 'Ada L.' WHERE id = 1

> FETCH 2 cache
<time>  upsert  100  "Ada L."  sent  21.00  2
<time>  upsert  102  "Ada L."  open  52.25  2

# Inserting an order twice violates the key: the envelope reports a key_violation.

$ postgres-execute connection=${testdrive.url}
INSERT INTO orders VALUES (102, 2, 'paid'), (102, 2, 'open')

> FETCH 1 cache
<time>  key_violation  102  <null>  <null>  <null>  <null>

> COMMIT

# The day's turnover, a single row: many orders in one statement produce one deletion and one insertion.

> BEGIN

> DECLARE turnover CURSOR FOR SUBSCRIBE (SELECT count(*) AS orders, sum(total) AS turnover FROM order_totals WHERE status <> 'open')

> FETCH 1 turnover
mz_timestamp  mz_diff  orders  turnover
----
<time>  1  2  73.25

$ postgres-execute connection=${testdrive.url}
INSERT INTO orders SELECT 200 + n, 2, 'paid' FROM generate_series(1, 50) AS n; INSERT INTO order_items SELECT 200 + n, 'tea', 1, 4.50 FROM generate_series(1, 50) AS n

> FETCH 2 turnover
<time>  -1  2  73.25
<time>  1  52  298.25

> COMMIT

# The bounded stream of an empty result has no rows, and ends.

> SUBSCRIBE (SELECT id FROM orders WHERE id < 0) AS OF ${stored} UP TO ${stored} + 1
