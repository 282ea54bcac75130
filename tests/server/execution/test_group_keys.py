"""Maintained grouping by jsonb and by intervals, of which equal values may be different values."""

from __future__ import annotations

import psycopg
import pytest

VIEWS = {
    "grouped": "SELECT j, count(*) AS n, max(id) AS last FROM t GROUP BY j",
    "distinct_rows": "SELECT DISTINCT i, j FROM t",
    "first_rows": "SELECT DISTINCT ON (j) j, id FROM t ORDER BY j, id",
    "united": "SELECT j FROM t WHERE id < 3 UNION SELECT j FROM t WHERE id > 1",
    "common": "SELECT j, i FROM t WHERE id < 5 INTERSECT SELECT j, i FROM t WHERE id > 1",
    "others": "SELECT j FROM t WHERE id > 2 EXCEPT SELECT j FROM t WHERE id < 3",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY i ORDER BY id) AS n FROM t",
    "counted": "SELECT count(DISTINCT j) AS j, count(DISTINCT i) AS i FROM t",
    "neighbours": "SELECT id, sum(id) OVER (PARTITION BY i ORDER BY id % 3 GROUPS 1 PRECEDING) AS total FROM t",
    "placed": "SELECT rank(2) WITHIN GROUP (ORDER BY id), dense_rank(3) WITHIN GROUP (ORDER BY id) FROM t",
}
CHANGES = (  # the views are compared after each line
    "INSERT INTO t VALUES (1, '1', '1 month'), (2, '1.0', '30 days'), (3, '{\"a\": 1}', '1 day'), (4, NULL, NULL);"
    "INSERT INTO t VALUES (5, '1.00', '720 hours'), (6, '{\"a\": 1.0}', '24 hours'), (7, NULL, NULL)",
    "DELETE FROM t WHERE id = 1; UPDATE t SET j = '2' WHERE id IN (2, 6); DELETE FROM t WHERE j IS NULL",
)


@pytest.mark.ivm
def test_views_follow_their_table(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, j jsonb, i interval)")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}".encode())
        for change in CHANGES:
            for statement in change.split(";"):
                connection.execute(statement.encode())
            for name, query in VIEWS.items():
                maintained = connection.execute(f"SELECT * FROM {name}".encode()).fetchall()
                computed = connection.execute(query.encode()).fetchall()
                assert sorted(map(repr, maintained)) == sorted(map(repr, computed)), (name, change)
