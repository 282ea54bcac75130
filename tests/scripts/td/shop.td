# A shop: orders with nullable columns, a stock that is derived from the ordered items, corrections, renames.

! CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers)
contains:relation "customers" does not exist

> CREATE TABLE customers (id int NOT NULL, name text NOT NULL, country char(2), referred_by int)

> CREATE TABLE products (sku text NOT NULL, title text NOT NULL, price numeric(10, 2), stock int DEFAULT 0)

> CREATE TABLE orders (id int NOT NULL, customer int, status text DEFAULT 'new', placed date NOT NULL)

> CREATE TABLE items (order_id int NOT NULL, sku text, qty int NOT NULL, discount numeric(4, 3))

> CREATE MATERIALIZED VIEW totals AS
  SELECT o.id, o.customer, o.status, o.placed, count(i.sku) AS lines,
    sum(i.qty * p.price * (1 - coalesce(i.discount, 0)))::numeric(12, 2) AS total
  FROM orders o LEFT JOIN items i ON i.order_id = o.id LEFT JOIN products p USING (sku)
  GROUP BY o.id, o.customer, o.status, o.placed

> CREATE VIEW countries AS
  SELECT c.country, count(DISTINCT c.id) AS customers, count(t.id) AS orders, coalesce(sum(t.total), 0)::numeric(12, 2) AS turnover
  FROM customers c LEFT JOIN totals t ON t.customer = c.id AND t.status <> 'cancelled' GROUP BY c.country

> CREATE MATERIALIZED VIEW board AS
  SELECT country, customers, orders, turnover, rank() OVER (ORDER BY turnover DESC) AS place FROM countries

> CREATE MATERIALIZED VIEW available AS
  SELECT p.sku, p.stock - coalesce((SELECT sum(i.qty) FROM items i JOIN orders o ON o.id = i.order_id
    WHERE i.sku = p.sku AND o.status IN ('new', 'paid')), 0) AS pieces FROM products p

> CREATE MATERIALIZED VIEW orphans AS
  SELECT o.id, 'customer' AS missing FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer)
  UNION ALL SELECT i.order_id, 'product' FROM items i LEFT JOIN products p ON p.sku = i.sku WHERE p.sku IS NULL

> CREATE MATERIALIZED VIEW referrals AS
  SELECT c.name, r.name AS referrer, g.name AS grand FROM customers c
  LEFT JOIN customers r ON r.id = c.referred_by LEFT JOIN customers g ON g.id = r.referred_by

> INSERT INTO customers VALUES (1, 'Ann', 'DE', NULL), (2, 'Bob', 'US', 1), (3, 'Cy', NULL, 1), (4, 'Dee', 'US', 3)

> INSERT INTO products VALUES
  ('A', 'Apple', 1.20, 100), ('B', 'Bike', 350, 3), ('C', 'Chair', 45.5, NULL), ('D', 'Desk', NULL, 0)

> BEGIN

> INSERT INTO orders VALUES (1, 1, 'paid', '2026-01-01'), (2, 2, DEFAULT, '2026-01-02'), (3, 2, 'sent', '2026-02-03')

> INSERT INTO items VALUES (1, 'A', 10, NULL), (1, 'B', 1, 0.1), (2, 'C', 4, 0.05), (3, 'D', 1, NULL)

> COMMIT

> SELECT * FROM totals
id customer status placed lines total
----
1 1 paid 2026-01-01 2 327.00
2 2 new 2026-01-02 1 172.90
3 2 sent 2026-02-03 1 <null>

> SELECT * FROM board
country customers orders turnover place
----
DE 1 1 327.00 1
US 2 2 172.90 2
<null> 1 0 0.00 3

> SELECT * FROM available
A 90
B 2
C <null>
D 0

> SELECT * FROM orphans

> SELECT * FROM referrals
Ann <null> <null>
Bob Ann <null>
Cy Ann <null>
Dee Cy Ann

# A price is set, an order is cancelled, a customer's country changes, and another customer is deleted.

> UPDATE products SET price = 100 WHERE sku = 'D'

> UPDATE orders SET status = 'cancelled' WHERE id = 1 RETURNING id, status
1 cancelled

> UPDATE customers SET country = 'FR' WHERE id = 4

> DELETE FROM customers WHERE id = 3

> INSERT INTO orders VALUES (4, 9, 'paid', '2026-03-01'), (5, NULL, 'new', '2026-03-01')

> INSERT INTO items VALUES (4, 'Z', 2, 0), (4, NULL, 1, 0), (5, 'A', 95, 0.5)

> SELECT * FROM board
US 1 2 272.90 1
DE 1 0 0.00 2
FR 1 0 0.00 2

> SELECT * FROM available
A 5
B 3
C <null>
D 0

> SELECT * FROM orphans
4 customer
5 customer
4 product
4 product

> SELECT * FROM referrals
Ann <null> <null>
Bob Ann <null>
Dee <null> <null>

# One UPDATE subtracts the ordered quantities from the stock.

> UPDATE products p SET stock = p.stock - sold.pieces
  FROM (SELECT sku, sum(qty)::int AS pieces FROM items GROUP BY sku) sold WHERE sold.sku = p.sku RETURNING p.sku, p.stock
A -5
B 2
C <null>
D -1

> DELETE FROM items i USING orders o WHERE o.id = i.order_id AND o.status = 'new'

> SELECT * FROM available
A -5
B 2
C <null>
D -1

# Relations are renamed. The views over them stay valid.

> ALTER TABLE orders RENAME TO purchases

> ALTER VIEW countries RENAME TO markets

> INSERT INTO purchases VALUES (6, 1, 'new', '2026-04-01')

> INSERT INTO items VALUES (6, 'B', 2, NULL)

> SELECT country, turnover FROM board
DE 700.00
US 100.00
FR 0.00

> SELECT country, orders FROM markets
DE 1
US 2
FR 0
