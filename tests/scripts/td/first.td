# Reads of tables, views and materialized views after writes.

> CREATE TABLE readings (sensor text NOT NULL, celsius int)

> CREATE MATERIALIZED VIEW warm AS
  SELECT sensor, count(*) AS n, max(celsius) AS hottest FROM readings GROUP BY sensor

> CREATE VIEW hot AS SELECT sensor FROM warm WHERE hottest > 30

> INSERT INTO readings VALUES ('roof', 31), ('cellar', 12), ('roof', 12)

# A read of a materialized view reflects the last write.
> SELECT * FROM warm
sensor n hottest
----
roof 2 31
cellar 1 12

> SELECT * FROM hot
roof

> UPDATE readings SET celsius = celsius + 20 WHERE sensor = 'cellar'

> SELECT * FROM hot
roof
cellar

> DELETE FROM readings WHERE sensor = 'roof'

> SELECT * FROM warm
cellar 1 32

! INSERT INTO readings VALUES (NULL, 1)
contains:null value in column "sensor" of relation "readings" violates not-null constraint

! SELECT * FROM nowhere
contains:relation "nowhere" does not exist

! DROP TABLE readings
contains:cannot drop table readings because other objects depend on it

> DROP TABLE readings CASCADE

! SELECT * FROM hot
contains:relation "hot" does not exist
