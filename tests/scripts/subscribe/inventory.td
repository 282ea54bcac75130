# A warehouse: stock is the sum of movements. A screen shows the products whose stock is low and follows their changes.

$ set-sql-timeout duration=60s

$ set-regex match=\b\d{13}\b replacement=<time>

> CREATE TABLE products (sku text NOT NULL, name text NOT NULL, reorder_at int NOT NULL)

> CREATE TABLE movements (id int NOT NULL, sku text NOT NULL, quantity int NOT NULL, at timestamp NOT NULL)

> CREATE VIEW stock AS
  SELECT p.sku, p.name, p.reorder_at, coalesce(sum(m.quantity), 0) AS on_hand
  FROM products AS p LEFT JOIN movements AS m ON m.sku = p.sku
  GROUP BY p.sku, p.name, p.reorder_at

> CREATE MATERIALIZED VIEW low_stock AS
  SELECT sku, name, on_hand, reorder_at - on_hand AS missing FROM stock WHERE on_hand < reorder_at

> INSERT INTO products VALUES ('bolt-8', 'Bolt M8', 100), ('nut-8', 'Nut M8', 100), ('gear-1', 'Gear', 5)

> INSERT INTO movements VALUES
  (1, 'bolt-8', 500, '2024-03-01 08:00'),
  (2, 'nut-8', 80, '2024-03-01 08:00'),
  (3, 'gear-1', 6, '2024-03-01 09:30')

> SELECT * FROM stock
bolt-8  "Bolt M8"  100  500
nut-8   "Nut M8"   100  80
gear-1  Gear       5    6

> SELECT * FROM low_stock
sku    name      on_hand  missing
----
nut-8  "Nut M8"  80       20

# The screen receives the current low stock, then every change. The old row of a change precedes the new row.

> BEGIN

> DECLARE screen CURSOR FOR SUBSCRIBE low_stock WITHIN TIMESTAMP ORDER BY sku, mz_diff

> FETCH 1 screen
mz_timestamp  mz_diff  sku  name  on_hand  missing
----
<time>  1  nut-8  "Nut M8"  80  20

# A shipment reduces one product's stock below its minimum. A delivery that is too small changes another product's row.

$ postgres-execute connection=${testdrive.url}
BEGIN
INSERT INTO movements VALUES (4, 'bolt-8', -450, '2024-03-02 10:00')
INSERT INTO movements VALUES (5, 'nut-8', 15, '2024-03-02 10:00')
COMMIT

> FETCH 1 screen
<time>  1  bolt-8  "Bolt M8"  50  50

> FETCH 1 screen
<time>  -1  nut-8  "Nut M8"  80  20

> FETCH 1 screen
<time>  1  nut-8  "Nut M8"  95  5

# Movements that do not change the result produce no rows. The next row is that of the gears.

$ postgres-execute connection=${testdrive.url}
INSERT INTO movements VALUES (6, 'gear-1', 4, '2024-03-02 11:00')
INSERT INTO movements VALUES (7, 'gear-1', -4, '2024-03-02 11:05')
INSERT INTO movements VALUES (8, 'gear-1', -2, '2024-03-02 11:10')

> FETCH 1 screen
<time>  1  gear-1  Gear  4  1

# A product is renamed: the deletion of the old row and the insertion of the new row have the same timestamp.

$ postgres-execute connection=${testdrive.url}
UPDATE products SET name = 'Gear, small' WHERE sku = 'gear-1'

> FETCH 2 screen
<time>  -1  gear-1  Gear  4  1
<time>  1  gear-1  "Gear, small"  4  1

# A correction: one movement is deleted and the quantity of another is changed.

$ postgres-execute connection=${testdrive.url}
DELETE FROM movements WHERE id = 4
UPDATE movements SET quantity = 25 WHERE id = 5

> FETCH 1 screen
<time>  -1  bolt-8  "Bolt M8"  50  50

> FETCH 1 screen
<time>  -1  nut-8  "Nut M8"  95  5

> COMMIT

> SELECT * FROM low_stock
gear-1  "Gear, small"  4  1

# A report as of the time of the audit, independent of later writes.

$ postgres-connect name=audit url=${testdrive.url}

$ postgres-execute connection=audit
BEGIN
SELECT count(*) FROM movements

$ set-from-sql var=audit
SELECT mz_now()

> INSERT INTO movements VALUES (9, 'gear-1', -4, '2024-03-03 07:00')

$ unset-regex

> SUBSCRIBE (SELECT sku, on_hand FROM stock) ENVELOPE UPSERT (KEY (sku)) AS OF ${audit} UP TO ${audit} + 1
${audit}  upsert  bolt-8  500
${audit}  upsert  gear-1  4
${audit}  upsert  nut-8   105

# The changes since the audit: the same stream from the audit on, without its snapshot.

> BEGIN

> DECLARE since CURSOR FOR SUBSCRIBE (SELECT sku, on_hand FROM stock) ENVELOPE DEBEZIUM (KEY (sku)) WITH (SNAPSHOT false) AS OF ${audit}

$ set-regex match=\b\d{13}\b replacement=<time>

> FETCH 1 since
mz_timestamp  mz_state  sku  before_on_hand  after_on_hand
----
<time>  upsert  gear-1  4  0

> COMMIT

! DROP TABLE movements
contains:cannot drop table movements because other objects depend on it
