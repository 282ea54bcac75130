# EXPLAIN: the plan after each stage, the statistics of a statement and of a dataflow. Lines are compared in any order.

> CREATE TABLE people (id int, name text, town text)

> CREATE TABLE visits (who int, pages int)

> INSERT INTO people VALUES (1, 'ada', 'x'), (2, 'bob', 'y')

> INSERT INTO visits VALUES (1, 3), (1, 4), (2, 0)

$ set-regex match=\w+\.public\.|\d+(?=.bytes)|\b\d{13}\b|\b[uq]\d+\b replacement=<>

> EXPLAIN RAW PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town
"Project p.town AS town, sum"
"  Aggregate by town: sum(pages)"
"    Filter ((id = who) AND (pages > 0))"
"      Join CROSS"
"        Scan <>people"
"        Scan <>visits"

> EXPLAIN OPTIMIZED PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town
"Project p.town AS town, sum"
"  Aggregate by town: sum(pages)"
"    Project town, pages"
"      Join INNER on (id = who)"
"        Project id, town"
"          Scan <>people"
"        Filter (pages > 0)"
"          Scan <>visits"

> EXPLAIN PHYSICAL PLAN FOR SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town
"1 Aggregate (accumulable), by (town): sum"
"    arrangement of sums and counts by (town)"
"  2 Join, by (id) = (who)"
"      arrangement of 3 by (id)"
"      arrangement of 4 by (who)"
"    3 Changes of <>people: id, town"
"    4 Map/Filter/Project: who, pages"
"      5 Changes of <>visits: who, pages"

> CREATE MATERIALIZED VIEW towns AS SELECT p.town, sum(v.pages) FROM people p, visits v WHERE p.id = v.who AND v.pages > 0 GROUP BY p.town

> SELECT * FROM towns
x 7

> INSERT INTO visits VALUES (2, 5)

> SELECT * FROM towns
x 7
y 5

> EXPLAIN (ANALYZE, TIMING off) MATERIALIZED VIEW towns
"Dataflow: <>, of <>towns"
"Hydration: hydrated as of <>: 5 of 5 rows read, 5 of 5 operators done"
"Steps: 1"
"Kept up to date:"
"  1 Aggregate (accumulable), by (town): sum"
"      hydration: rows 2 in, 1 out, 1 Spark statement"
"      last step: rows 1 in, 1 out, 1 Spark statement"
"      arrangement of sums and counts by (town): 2 rows, <> bytes"
"    2 Join, by (id) = (who)"
"        hydration: rows 4 in, 2 out, 1 Spark statement"
"        last step: rows 1 in, 1 out, 1 Spark statement"
"        arrangement of 3 by (id): 2 rows, <> bytes"
"        arrangement of 4 by (who): 3 rows, <> bytes"
"      3 Changes of <>people: id, town"
"          hydration: rows 0 in, 2 out"
"          last step: rows 0 in, 0 out"
"      4 Map/Filter/Project: who, pages"
"          hydration: rows 3 in, 2 out, 1 Spark statement"
"          last step: rows 1 in, 1 out, 1 Spark statement"
"        5 Changes of <>visits: who, pages"
"            hydration: rows 0 in, 3 out"
"            last step: rows 0 in, 1 out"

> EXPLAIN (ANALYZE, TIMING off, SUMMARY off) INSERT INTO visits SELECT who, pages + 1 FROM visits WHERE who = 1
"        Scan <>visits"
"      Filter (who = 1)"
"    Project who, (pages + 1) AS ?column?"
"  Project who, ?column? AS pages"
"  Read <>visits: 2 rows"
"  Run on Spark: 2 rows"
"  Write <>visits: 2 rows"
Plan:
Steps:

> SELECT * FROM visits
1 3
1 4
1 4
1 5
2 0
2 5

? EXPLAIN RAW PLAN AS JSON FOR SELECT 1 AS one
[
  {
    "Plan": {
      "Node Type": "Project 1 AS one",
      "Plans": [
        {
          "Node Type": "Values, 1 row"
        }
      ]
    }
  }
]

> SELECT state, operators_done, operators, rows_read, rows_there FROM mz_internal.mz_hydration_statuses WHERE object_id = (SELECT id FROM mz_catalog.mz_materialized_views WHERE name = 'towns')
hydrated 5 5 5 5

> SELECT relname FROM pg_catalog.pg_class WHERE relname LIKE 'mz_dataflow%' OR relname LIKE 'mz_hydration%'
mz_dataflow_lags
mz_dataflow_operators
mz_dataflow_step_durations_histogram
mz_dataflows
mz_hydration_statuses

> SELECT table_name FROM information_schema.tables WHERE table_schema = 'mz_internal' AND table_name LIKE '%dataflow%'
mz_dataflow_lags
mz_dataflow_operators
mz_dataflow_step_durations_histogram
mz_dataflows

! EXPLAIN ANALYZE SUBSCRIBE (SELECT 17 * pages FROM visits)
contains:no dataflow of this query runs

! EXPLAIN (FORMAT yaml) SELECT 1
contains:EXPLAIN (FORMAT YAML) is not supported

! EXPLAIN (fast) SELECT 1
contains:unrecognized EXPLAIN option "fast"
