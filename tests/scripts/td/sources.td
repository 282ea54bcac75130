# Sources: load generators, subsources, tables from sources, and views over them.

> CREATE SOURCE numbers (n) FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 100)

> SELECT count(*), sum(n) FROM numbers
100 5050

> CREATE MATERIALIZED VIEW even AS SELECT count(*) AS count FROM numbers WHERE n % 2 = 0

> SELECT * FROM even
50

> CREATE SOURCE last (n) FROM LOAD GENERATOR COUNTER (TICK INTERVAL '0s', UP TO 100, MAX CARDINALITY 3)

> SELECT * FROM last
98
99
100

> BEGIN

> CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '0s', UP TO 110)

> CREATE TABLE offers FROM SOURCE auction (REFERENCE bids)

> CREATE TABLE sales FROM SOURCE auction (REFERENCE auctions)

> COMMIT

> SELECT s.id, count(o.id) FROM sales s JOIN offers o ON o.auction_id = s.id GROUP BY s.id HAVING count(o.id) <> 10

> SELECT (SELECT count(*) FROM sales), (SELECT count(*) FROM offers)
10 100

> CREATE SOURCE keys FROM LOAD GENERATOR KEY VALUE (KEYS 10, BATCH SIZE 3, TICK INTERVAL '0s', UP TO 50)
  INCLUDE KEY ENVELOPE UPSERT

> SELECT count(*), count(DISTINCT key) FROM keys
10 10

> CREATE SOURCE tpch FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.001) FOR TABLES (orders, lineitem)

> SELECT count(*) FROM orders
1500

> SELECT count(*) FROM orders o
  WHERE o_totalprice <> (SELECT sum(l_extendedprice) FROM lineitem WHERE l_orderkey = o_orderkey)
0

> SHOW SOURCES
numbers load-generator
last load-generator
auction load-generator
keys load-generator
tpch load-generator
orders subsource
lineitem subsource

! INSERT INTO numbers VALUES (1)
exact: cannot insert into source "numbers"

! SELECT * FROM auction
contains: cannot open relation "auction"

! DROP SOURCE auction
contains: cannot drop source auction because other objects depend on it

> DROP SOURCE auction CASCADE

> DROP SOURCE tpch

! SELECT * FROM orders
contains: relation "orders" does not exist

! CREATE SOURCE x FROM LOAD GENERATOR COUNTER (TICK 1)
contains: unrecognized option TICK of COUNTER
