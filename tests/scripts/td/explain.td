# EXPLAIN: a plan from stage to stage, what a statement did, what a dataflow did. Lines come in any order here.

> CREATE TABLE people (id int, name text, town text)

> CREATE TABLE visits (who int, pages int)

> INSERT INTO people VALUES (1, 'ada', 'x'), (2, 'bob', 'y')

> INSERT INTO visits VALUES (1, 3), (1, 4), (2, 0)

$ set-regex match=\w+\.public\.|\b\d{13}\b|\b[uq]\d+\b|\d+\.\d{3}(?=.ms) replacement=<>

> EXPLAIN RAW PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town

> EXPLAIN OPTIMIZED PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town

> EXPLAIN PHYSICAL PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town

> CREATE MATERIALIZED VIEW towns AS SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town

> SELECT * FROM towns

> INSERT INTO visits VALUES (2, 5)

> SELECT * FROM towns

> EXPLAIN (ANALYZE, TIMING off) MATERIALIZED VIEW towns

> EXPLAIN ANALYZE MATERIALIZED VIEW towns

> EXPLAIN (ANALYZE, TIMING off, SUMMARY off) INSERT INTO visits SELECT who, pages + 1 FROM visits WHERE who = 1

> SELECT * FROM visits

? EXPLAIN (ANALYZE, TIMING off, SUMMARY off, FORMAT json) SELECT count(*) FROM visits

> SELECT state, operators_done, operators, rows_read, rows_there FROM mz_internal.mz_hydration_statuses WHERE object_id = (SELECT id FROM mz_catalog.mz_materialized_views WHERE name = 'towns')

> SELECT relname FROM pg_catalog.pg_class WHERE relname LIKE 'mz_dataflow%' OR relname LIKE 'mz_hydration%'

> SELECT table_name FROM information_schema.tables WHERE table_schema = 'mz_internal' AND table_name LIKE '%dataflow%'

! EXPLAIN ANALYZE SUBSCRIBE (SELECT 17 * pages FROM visits)
contains:no dataflow of this query runs

! EXPLAIN (FORMAT yaml) SELECT 1
contains:EXPLAIN (FORMAT YAML) is not supported

! EXPLAIN (fast) SELECT 1
contains:unrecognized EXPLAIN option "fast"
