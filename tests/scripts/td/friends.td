# A graph: self joins, triangles, friends of friends, anti-joins, the best rows per group.

> CREATE TABLE people (id int NOT NULL, name text, city text)

> CREATE TABLE follows (a int, b int, since date)

> CREATE TABLE posts (id int NOT NULL, author int, parent int, likes int, tags text[])

> CREATE MATERIALIZED VIEW friends AS
  SELECT x.a, x.b, greatest(x.since, y.since) AS since FROM follows x JOIN follows y ON x.a = y.b AND x.b = y.a
  WHERE x.a < x.b

> CREATE MATERIALIZED VIEW triangles AS
  SELECT x.a, y.a AS b, z.a AS c FROM follows x, follows y, follows z
  WHERE x.b = y.a AND y.b = z.a AND z.b = x.a AND x.a < y.a AND x.a < z.a

> CREATE MATERIALIZED VIEW degrees AS
  SELECT p.id, p.name, count(f.a) AS friends FROM people p LEFT JOIN friends f ON p.id IN (f.a, f.b) GROUP BY p.id, p.name

> CREATE MATERIALIZED VIEW suggestions AS
  SELECT x.a, y.b, count(*) AS paths FROM follows x JOIN follows y ON x.b = y.a
  WHERE x.a <> y.b AND NOT EXISTS (SELECT 1 FROM follows z WHERE z.a = x.a AND z.b = y.b) GROUP BY x.a, y.b

> CREATE MATERIALIZED VIEW best AS
  SELECT p.name, t.id, t.likes FROM people p CROSS JOIN LATERAL (
    SELECT id, likes FROM posts WHERE author = p.id ORDER BY likes DESC NULLS LAST, id LIMIT 2) t

> CREATE MATERIALIZED VIEW topics AS
  SELECT t.tag, count(*) AS posts, array_agg(DISTINCT author ORDER BY author) AS authors
  FROM posts, unnest(tags) AS t(tag) GROUP BY t.tag

> CREATE MATERIALIZED VIEW silent AS SELECT name FROM people WHERE id NOT IN (SELECT author FROM posts)

> INSERT INTO people VALUES (1, 'ada', 'ams'), (2, 'bob', 'nyc'), (3, 'cyd', NULL), (4, 'dan', 'nyc')

> INSERT INTO follows VALUES
  (1, 2, '2026-01-01'), (2, 1, '2026-01-05'), (2, 3, '2026-01-06'), (3, 1, NULL), (3, 4, '2026-01-07')

> INSERT INTO posts VALUES
  (10, 1, NULL, 3, '{sql,spark}'), (11, 1, NULL, NULL, '{sql}'), (12, 1, 10, 3, NULL), (13, 2, 10, 0, '{}')

> SELECT * FROM friends
1 2 2026-01-05

> SELECT * FROM triangles
1 2 3

> SELECT * FROM degrees
1 ada 1
2 bob 1
3 cyd 0
4 dan 0

> SELECT * FROM suggestions
1 3 1
2 4 1
3 2 1

> SELECT * FROM best
ada 10 3
ada 12 3
bob 13 0

> SELECT * FROM topics
spark 1 {1}
sql 2 {1}

> SELECT * FROM silent
cyd
dan

# If an author is NULL, NOT IN is true for no row.

> INSERT INTO posts VALUES (14, NULL, NULL, 9, '{spark}')

> SELECT * FROM silent

> SELECT * FROM topics
spark 2 {1,NULL}
sql 2 {1}

> UPDATE posts SET author = 4, likes = 1 WHERE id = 14

> SELECT * FROM silent
cyd

> SELECT * FROM best
ada 10 3
ada 12 3
bob 13 0
dan 14 1

# Inserted edges complete friendships and triangles, and deleted edges break them. Equal edges count twice.

> INSERT INTO follows VALUES (1, 3, '2026-02-01'), (4, 1, '2026-02-02'), (1, 2, '2026-01-01')

> SELECT * FROM friends
1 2 2026-01-05
1 2 2026-01-05
1 3 2026-02-01

> SELECT * FROM triangles
1 2 3
1 2 3
1 3 4

> SELECT * FROM degrees
1 ada 3
2 bob 2
3 cyd 1
4 dan 0

> DELETE FROM follows WHERE a = 3

> SELECT * FROM triangles

> SELECT * FROM suggestions
4 2 2
4 3 1

> UPDATE people SET id = 5 WHERE name = 'bob'

> SELECT * FROM degrees
1 ada 2
3 cyd 0
4 dan 0
5 bob 0

> SELECT * FROM silent
bob
cyd
