# CREATE TABLE ... FROM SOURCE: a source without a format reads several topics, each with its own format and envelope.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

$ kafka-create-topic topic=orders

$ kafka-create-topic topic=notes

$ kafka-ingest topic=orders format=bytes key-format=bytes
1:tea
2:coffee
1:green tea

$ kafka-ingest topic=notes format=bytes
first

> CREATE SOURCE shop FROM KAFKA CONNECTION k (TOPIC 'testdrive-orders-${testdrive.seed}')

> CREATE TABLE orders (id, item) FROM SOURCE shop (REFERENCE "testdrive-orders-${testdrive.seed}")
  KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT

> CREATE TABLE history FROM SOURCE shop (REFERENCE "testdrive-orders-${testdrive.seed}")
  KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY, OFFSET

> CREATE TABLE notes FROM SOURCE shop (REFERENCE "testdrive-notes-${testdrive.seed}") FORMAT TEXT

> SELECT id, item FROM orders
1 "green tea"
2 coffee

> SELECT key, text, "offset" FROM history
1 tea 0
2 coffee 1
1 "green tea" 2

> SELECT text FROM notes
first

$ kafka-ingest topic=orders format=bytes key-format=bytes
2:

> SELECT id, item FROM orders
1 "green tea"

# Tables in one transaction block.
> BEGIN

> CREATE SOURCE again FROM KAFKA CONNECTION k (TOPIC 'testdrive-notes-${testdrive.seed}')

> CREATE TABLE again_notes FROM SOURCE again (REFERENCE "testdrive-notes-${testdrive.seed}") FORMAT TEXT

> COMMIT

> SELECT text FROM again_notes
first

> SHOW TABLES LIKE '%notes'
again_notes
notes

! SELECT * FROM shop
contains:cannot open relation "shop"

! INSERT INTO orders VALUES ('3', 'milk')
contains:cannot insert into

! CREATE TABLE missing FROM SOURCE shop (REFERENCE "testdrive-missing-${testdrive.seed}") FORMAT TEXT
contains:topic "testdrive-missing-${testdrive.seed}" does not exist

! CREATE TABLE formless FROM SOURCE shop (REFERENCE "testdrive-notes-${testdrive.seed}")
contains:a table from a Kafka source requires a FORMAT

! DROP SOURCE shop
contains:cannot drop source shop because other objects depend on it

> DROP TABLE notes

> SELECT id, item FROM orders
1 "green tea"

> DROP SOURCE shop CASCADE

! SELECT * FROM orders
contains:relation "orders" does not exist
