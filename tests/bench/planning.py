"""Planning of a ten-line query to Spark SQL, with and without the cache, and of a long list; compared with sqlglot."""

from __future__ import annotations

import statistics
import time

import sqlglot

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.state import CatalogState
from server.frontend.query_cache import Cache
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, QueryPlan, plan_query
from tests.bench.servers import Line, Servers
from tests.server.states import empty_state

ROUNDS = 200
LIST = 100_000
QUERY = """
SELECT c.name AS carrier, f.origin, count(*) AS flights,
       avg(f.dep_delay) AS mean_delay, max(f.arr_delay) AS worst,
       sum(CASE WHEN f.dep_delay > 15 THEN 1 ELSE 0 END) AS late
FROM flights f
JOIN airlines c ON c.code = f.carrier
LEFT JOIN airports a ON a.faa = f.dest
WHERE f.month BETWEEN 3 AND 7 AND f.cancelled IS NOT TRUE AND a.name LIKE 'San%'
GROUP BY c.name, f.origin
HAVING count(*) > 10
ORDER BY late DESC, carrier
LIMIT 20
"""
TABLES = {
    "flights": "origin text, carrier text, dest text, dep_delay int4, arr_delay int4, month int4, cancelled bool",
    "airlines": "code text, name text",
    "airports": "faa text, name text",
}


def state() -> CatalogState:
    found = empty_state()
    for name, columns in TABLES.items():
        id, found = found.new_id()
        parts = [column.split() for column in columns.split(", ")]
        found = found.with_item(Table(id, ObjectId("u2"), name, tuple(Column(n, type) for n, type in parts)))
    return found


def run(servers: Servers) -> list[Line]:
    context = PlanContext(state=state(), database="materialize", search_path=("public",), user="materialize")
    cache: Cache[QueryPlan] = Cache()
    key = (QUERY, context.state.version, ("materialize", "public", "UTC"))
    plans, parses, finds = [], [], []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        planned = plan_query(parse_query(QUERY), context)
        plans.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        sqlglot.parse_one(QUERY, dialect="postgres")
        parses.append(time.perf_counter() - begun)
        cache.put(key, planned, len(QUERY))
        begun = time.perf_counter()
        found = cache.get((QUERY, context.state.version, ("materialize", "public", "UTC")))
        finds.append(time.perf_counter() - begun)
        assert found is planned
    parse = statistics.median(parses)
    long = f"SELECT sum(month) FROM flights WHERE dep_delay IN ({', '.join(map(str, range(LIST)))})"
    begun = time.perf_counter()
    plan_query(parse_query(long), context)
    took = time.perf_counter() - begun
    begun = time.perf_counter()
    sqlglot.parse_one(long, dialect="postgres")
    parsed = time.perf_counter() - begun
    lines = [
        Line(
            f"planning ten lines, {kind} / sqlglot's parse",
            f"{statistics.median(times) * 1e3:.3f} ms",
            f"{parse * 1e3:.2f} ms",
            f"{statistics.median(times) / parse:.3f} x",
            target,
        )
        for kind, times, target in (
            ("uncached", plans, "at most 30 ms"),
            ("cached", finds, "at most 0.2 ms"),
        )
    ]
    name = f"planning an IN list of {LIST:,} / sqlglot's parse"
    return [*lines, Line(name, f"{took:.2f} s", f"{parsed:.2f} s", f"{took / parsed:.3f} x", "at most 1.5 x")]
