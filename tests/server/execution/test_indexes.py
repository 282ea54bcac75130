"""Indexes as a client sees them: results equal those without indexes at every time, and lookups do not scan."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors

from catalog.objects.indexes import Index
from server.coordinator.coordinator import Coordinator
from server.spark.engine import SparkEngine
from tests.fix_server import ServerProcess, ServerThread
from tests.server.coordinator.test_bad_input import take_away

Connection = psycopg.Connection[Any]
Rows = list[tuple[Any, ...]]


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    with connected(dsn) as connection:
        yield connection


def rows(db: Connection, sql: str, *parameters: object) -> Rows:
    return sorted(db.execute(sql.encode(), parameters or None).fetchall(), key=repr)


def now(db: Connection) -> int:
    ((moment,),) = db.execute("SELECT mz_now()").fetchall()
    return int(moment)


def plan_of(db: Connection, sql: str) -> str:
    return "\n".join(line for (line,) in db.execute(f"EXPLAIN {sql}".encode()).fetchall())


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Polls `condition`, because no event tells a client how far a dataflow is."""
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError(what)


def await_hydrated(db: Connection, *names: str) -> None:
    def hydrated() -> bool:
        sql = (
            "SELECT o.name FROM mz_internal.mz_dataflows f JOIN mz_objects o ON o.id = f.object_id "
            "JOIN mz_schemas s ON s.id = o.schema_id JOIN mz_databases d ON d.id = s.database_id "
            "WHERE f.hydrated AND d.name = current_database()"
        )
        return {*names} <= {name for (name,) in db.execute(sql).fetchall()}

    await_true(hydrated, f"{names} are not hydrated")


class Ways:
    """Counts index lookups and scans. `without_indexes` disables index lookups."""

    def __init__(self, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.indexed = 0
        self.scanned = 0
        self.without_indexes = False
        asks, scans = coordinator.indexes.find, coordinator.reads.rows

        async def find(*args: Any) -> Any:
            found = None if self.without_indexes else await asks(*args)
            self.indexed += found is not None
            return found

        async def scanned_rows(*args: Any) -> Any:
            self.scanned += 1
            return await scans(*args)

        monkeypatch.setattr(coordinator.indexes, "find", find)
        monkeypatch.setattr(coordinator.reads, "rows", scanned_rows)


@pytest.fixture
def ways(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(server.app.coordinator, monkeypatch)


# -- the same results -------------------------------------------------------------------------------------------------

POOLS: dict[str, tuple[str, list[str]]] = {
    "k": ("int", ["NULL", "-1", "0", "1", "2", "2147483647"]),
    "big": ("bigint", ["NULL", "-1", "0", "9007199254740993", "9007199254740992"]),
    "f": ("float8", ["NULL", "'-0'::float8", "0::float8", "'NaN'::float8", "0.1::float8", "'-Infinity'::float8"]),
    "r": ("float4", ["NULL", "'-0'::float4", "0::float4", "'NaN'::float4", "0.1::float4", "0.5::float4"]),
    "n": ("numeric(8,2)", ["NULL", "0", "-0.5", "1.5", "1.50", "1.51", "123456.78"]),
    "s": ("text", ["NULL", "''", "'a'", "'A'", "'ä'", "'a '", "'long, longer than eight bytes'"]),
    "c": ("char(3)", ["NULL", "''", "'a'", "'a  '", "'ab'", "'abc'"]),
    "vc": ("varchar(5)", ["NULL", "''", "'a'", "'a '", "'ab'"]),
    "b": ("bool", ["NULL", "true", "false"]),
    "d": ("date", ["NULL", "'2024-02-29'::date", "'0001-01-01'::date"]),
    "ts": ("timestamptz", ["NULL", "'2024-02-29 12:00:00+02'::timestamptz", "'2024-02-29 10:00:00+00'::timestamptz"]),
    "raw": ("bytea", ["NULL", r"'\x'::bytea", r"'\x00'::bytea", r"'\x0000'::bytea"]),
}
OTHERS = {  # values of another type, or outside the column's range
    "k": ["1.0", "1.5", "5000000000", "1::int2", "2.0::float8", "'NaN'::float8"],
    "big": ["0.0", "9007199254740993.0", "1e30"],
    "f": ["0.1::float4", "0", "'NaN'::float4"],
    "r": ["0.1::float8", "0.5::float8", "0"],
    "n": ["1.500", "1.505", "1e20", "1"],
    "s": ["'a'::varchar(5)"],
    "c": ["'a    '", "'abcd'"],
    "vc": ["'a'::text", "'abcdefgh'"],
}
CHOSEN = ["*", "*", "*", "row, s", "count(*), min(n)", "row + 1, upper(s), c || 'x'"]


class Model:
    """Random statements for a table with a column of each type."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._row = 0

    def indexes(self) -> list[str]:
        chosen = self._random.sample(list(POOLS), 5)
        pairs = [self._random.sample(list(POOLS), 2) for _ in range(2)]
        return [*chosen, *(", ".join(pair) for pair in pairs), "lower(s)"]

    def change(self) -> str:
        match self._random.randrange(4):
            case 0:
                return f"DELETE FROM t WHERE row % 5 = {self._random.randrange(5)}"
            case 1:
                column = self._random.choice(list(POOLS))
                return f"UPDATE t SET {column} = {self._value(column)} WHERE row % 4 = {self._random.randrange(4)}"
        return f"INSERT INTO t VALUES {', '.join(self._rows(self._random.randrange(1, 12)))}"

    def _rows(self, count: int) -> Iterator[str]:
        for _ in range(count):
            self._row += self._random.randrange(2)  # some rows get the same number
            yield f"({self._row}, {', '.join(self._random.choice(pool) for _, pool in POOLS.values())})"

    def _value(self, column: str) -> str:
        return self._random.choice(POOLS[column][1])

    def query(self, keys: str) -> str:
        """Returns a query with a condition on each column or expression of `keys`."""
        columns = keys.split(", ")
        conditions = [self._condition(column) for column in columns]
        if self._random.random() < 0.3:
            conditions.append(self._random.choice(["row > 3", "s LIKE 'a%'", "k IS NOT NULL", "f > 0"]))
        where = " AND ".join(self._random.sample(conditions, len(conditions)))
        if self._random.random() < 0.15:
            return f"SELECT x.row, y.s FROM (SELECT * FROM t WHERE {where}) x JOIN t y ON x.row = y.row"
        return f"SELECT {self._random.choice(CHOSEN)} FROM t WHERE {where}"

    def _condition(self, column: str) -> str:
        name = "s" if column == "lower(s)" else column
        pool = [v for v in POOLS[name][1] if v != "NULL"]
        one, two = self._random.choice(pool), self._random.choice(pool)
        type = POOLS[name][0]
        match self._random.randrange(7):
            case 0 if name in OTHERS:
                return f"{column} = {self._random.choice(OTHERS[name])}"
            case 1:
                return f"{column} IN ({one}, {two})"
            case 2:
                return f"{column} = ANY (ARRAY[{one}, {two}, NULL]::{type.partition('(')[0]}[])"
            case 3:
                return f"({column} = {one} OR {two} = {column})"
            case 4:
                return f"{one} = {column}"
        return f"{column} = {one}"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sql) for seed in range(1, 4))])
@pytest.mark.long
def test_results_are_equal_with_and_without_indexes(seed: int, db: Connection, ways: Ways) -> None:
    model = Model(seed)
    types = ", ".join(f"{name} {type}" for name, (type, _) in POOLS.items())
    db.execute(f"CREATE TABLE t (row int, {types}) WITH (RETAIN HISTORY FOR '1h')".encode())
    indexes = {f"i{number}": keys for number, keys in enumerate(model.indexes())}
    moments = []
    for number in range(12):
        db.execute(model.change().encode())
        moments.append(now(db))
        if number == 3:
            for name, keys in indexes.items():
                db.execute(f"CREATE INDEX {name} ON t ({keys}) WITH (RETAIN HISTORY FOR '1h')".encode())
            await_hydrated(db, *indexes)
    for number in range(40):
        keys = model._random.choice(list(indexes.values()))
        query = f"{model.query(keys)} AS OF {model._random.choice(moments)}"
        if number % 4 == 0:
            query = model.query(keys)
        found: list[str] = []
        expected: list[str] = []
        for without, into in ((False, found), (True, expected)):
            ways.without_indexes = without
            into += map(repr, rows(db, query))  # so that NaN equals NaN
        assert found == expected, f"seed {seed}: {query}"
    assert ways.indexed >= 15, f"seed {seed}: indexes served {ways.indexed} queries"


def test_clients_look_up_by_parameters_of_every_type(dsn: str, db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int, big bigint, f float8, n numeric(8,2), s text, vc varchar(9), c char(3), b bool,"
               " d date, ts timestamptz, id uuid, raw bytea)")  # fmt: skip
    row = (7, 1 << 40, 0.25, Decimal("1.50"), "ä", "x", "ab ", True, date(2024, 2, 29),
           datetime(2024, 2, 29, 12, tzinfo=UTC), uuid.UUID(int=7), b"\x00")  # fmt: skip
    names = ("k", "big", "f", "n", "s", "vc", "c", "b", "d", "ts", "id", "raw")
    db.execute(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(row))})".encode(), row)
    db.execute(f"INSERT INTO t ({', '.join(names)}) VALUES ({', '.join(['NULL'] * len(row))})".encode())
    for name in names:
        db.execute(f"CREATE INDEX by_{name} ON t ({name})".encode())
    await_hydrated(db, *(f"by_{name}" for name in names))

    async def by_asyncpg() -> None:
        client = await asyncpg.connect(dsn)
        try:
            for name, value in zip(names, row, strict=True):
                statement = await client.prepare(f"SELECT * FROM t WHERE {name} = $1")
                for _ in range(2):
                    assert [tuple(found) for found in await statement.fetch(value)] == [row], name
                assert await statement.fetch(None) == []
            several = await client.prepare("SELECT k FROM t WHERE k = ANY($1)")
            assert await several.fetch([7, 8, None]) == [(7,)]
        finally:
            await client.close()

    ways.scanned = 0
    asyncio.run(by_asyncpg())
    for name, value in zip(names, row, strict=True):
        sql = f"SELECT * FROM t WHERE {name} = %s".encode()
        for binary in (False, True):
            assert db.execute(sql, (value,), prepare=True, binary=binary).fetchall() == [row], name
    assert ways.scanned == 0, "no log was read"


# -- lookups and scans ------------------------------------------------------------------------------------------------


def test_lookups_need_no_scan_and_plain_columns_need_no_spark(
    db: Connection, ways: Ways, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE TABLE t (k int, s text)")
    db.execute("INSERT INTO t SELECT n % 100, 's' || n FROM generate_series(1, 1000) AS g(n)")
    db.execute("CREATE INDEX i ON t (k)")
    await_hydrated(db, "i")
    assert "Index lookup" in plan_of(db, "SELECT s FROM t WHERE k = 5")
    assert "(k IN (5, 6))" in plan_of(db, "SELECT s FROM t WHERE k IN (5, 6)")
    assert "Index" not in plan_of(db, "SELECT s FROM t WHERE s = 'x'")
    db.execute("CREATE INDEX wide ON t (s, k)")
    assert "wide is not used, its key (s, k) has more than what is asked for (s)" in plan_of(
        db, "SELECT k FROM t WHERE s = 'x'"
    )
    db.execute("DROP INDEX wide")
    ran: list[int] = []
    run = server.app.engine.run

    async def counted(sql: str, views: Any, **options: Any) -> Any:
        ran.extend(view.num_rows for view in views.values())
        return await run(sql, views, **options)

    monkeypatch.setattr(server.app.engine, "run", counted)
    ways.scanned = 0
    assert len(rows(db, "SELECT s FROM t WHERE k = 5")) == 10
    assert len(rows(db, "SELECT s FROM t WHERE k IN (5, 6)")) == 20
    assert rows(db, "SELECT s FROM t WHERE k = 100") == []
    assert ran == []
    assert rows(db, "SELECT count(*), max(s) FROM t WHERE k = 5") == [(10, "s905")]
    assert rows(db, "SELECT count(*) FROM t a JOIN t b ON a.s = b.s WHERE a.k = 5 AND b.k = 5") == [(10,)]
    assert ways.scanned == 0
    assert set(ran) == {10}, "Spark gets the slice"
    db.execute("UPDATE t SET s = 'new' WHERE k = 5 AND s = 's905'")
    db.execute("DELETE FROM t WHERE k = 6")
    assert ways.scanned == 0, "writes look their rows up, too"
    assert ("new",) in rows(db, "SELECT s FROM t WHERE k = 5")
    assert rows(db, "SELECT s FROM t WHERE k = 6") == []


def test_lookups_respect_transactions_and_as_of(db: Connection, dsn: str, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int, v int)")
    db.execute("CREATE INDEX i ON t (k) WITH (RETAIN HISTORY FOR '1h')")
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    await_hydrated(db, "i")
    first = now(db)
    with psycopg.connect(dsn) as other:
        assert other.execute("SELECT v FROM t WHERE k = 1").fetchall() == [(1,)]
        db.execute("UPDATE t SET v = 10 WHERE k = 1")
        assert other.execute("SELECT v FROM t WHERE k = 1").fetchall() == [(1,)]
        assert rows(db, "SELECT v FROM t WHERE k = 1") == [(10,)]
    second = now(db)
    db.execute("DELETE FROM t WHERE k = 1")
    ways.scanned = ways.indexed = 0
    assert rows(db, "SELECT v FROM t WHERE k = 1") == []
    assert rows(db, f"SELECT v FROM t WHERE k = 1 AS OF {first}") == [(1,)]
    assert rows(db, f"SELECT v FROM t WHERE k = 1 AS OF {second}") == [(10,)]
    assert (ways.scanned, ways.indexed) == (0, 3)


def test_times_before_the_index_begins_are_read_from_the_table(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int) WITH (RETAIN HISTORY FOR '1h')")
    db.execute("INSERT INTO t VALUES (1)")
    first = now(db)
    db.execute("DELETE FROM t")
    db.execute("CREATE INDEX i ON t (k)")
    await_hydrated(db, "i")
    await_true(lambda: _since(db, "i") > first, "the index lets no history go")
    ways.scanned = ways.indexed = 0
    assert rows(db, f"SELECT * FROM t WHERE k = 1 AS OF {first}") == [(1,)]
    assert rows(db, "SELECT * FROM t WHERE k = 1") == []
    assert (ways.scanned, ways.indexed) == (1, 1)


def test_one_key_with_half_of_the_rows(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int, v int)")
    db.execute("INSERT INTO t SELECT CASE WHEN n % 2 = 0 THEN 0 ELSE n END, n FROM generate_series(1, 40000) AS g(n)")
    db.execute("CREATE INDEX i ON t (k)")
    await_hydrated(db, "i")
    ways.scanned = 0
    assert len(rows(db, "SELECT v FROM t WHERE k = 0")) == 20_000
    assert rows(db, "SELECT v FROM t WHERE k = 7") == [(7,)]
    assert ways.scanned == 0


def test_a_negative_multiplicity_is_an_error_in_index_lookups(db: Connection, dsn: str, server: ServerThread) -> None:
    db.execute("CREATE TABLE t (k int, v int)")
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    db.execute("CREATE INDEX i ON t (k)")
    await_hydrated(db, "i")
    take_away(server, dsn, (9, 9))
    with pytest.raises(errors.DataException, match="the count of a row is negative"):
        db.execute("SELECT v FROM t WHERE k = 1")  # fails although the negative row has another key, as without index
    take_away(server, dsn, (9, 9), 1)
    assert rows(db, "SELECT v FROM t WHERE k = 1") == [(1,)]
    assert rows(db, "SELECT v FROM t WHERE k = 9") == []


# -- indexes on views, expressions, default indexes -------------------------------------------------------------------


def test_queries_of_a_view_are_served_by_its_index(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int, v int)")
    db.execute("CREATE VIEW w AS SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k")
    db.execute("INSERT INTO t VALUES (1, 10), (1, 20), (2, 5)")
    db.execute("CREATE INDEX i ON w (k) WITH (RETAIN HISTORY FOR '1h')")
    await_hydrated(db, "i")
    first = now(db)
    db.execute("INSERT INTO t VALUES (2, 7), (3, 1)")
    ways.scanned = ways.indexed = 0
    assert rows(db, "SELECT * FROM w") == [(1, 30, 2), (2, 12, 2), (3, 1, 1)]
    assert rows(db, "SELECT s FROM w WHERE k = 2") == [(12,)]
    assert rows(db, "SELECT sum(s) FROM w WHERE n > 1") == [(42,)]
    assert rows(db, f"SELECT * FROM w WHERE k = 2 AS OF {first}") == [(2, 5, 1)]
    assert rows(db, "SELECT t.v, w.s FROM t JOIN w ON t.k = w.k WHERE t.v = 1 AND w.k = 3") == [(1, 1)]
    assert ways.scanned == 1, "t was, in the join"
    assert ways.indexed == 5
    assert "Index lookup" in plan_of(db, "SELECT s FROM w WHERE k = 2")
    assert "Kept up to date" in plan_of(db, "SELECT max(s) FROM w")
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT max(s) AS m FROM w")
    assert rows(db, "SELECT * FROM m") == [(30,)]
    db.execute("CREATE TABLE copy (k int, s bigint)")
    db.execute("INSERT INTO copy SELECT k, s FROM w WHERE k = 2")
    assert rows(db, "SELECT * FROM copy") == [(2, 12)]


def test_a_hold_on_the_index_of_a_view_keeps_its_history(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int)")
    db.execute("CREATE VIEW w AS SELECT k, count(*) AS n FROM t GROUP BY k")
    db.execute("INSERT INTO t VALUES (1)")
    with psycopg.connect(db.info.dsn) as other:
        other.execute("CREATE INDEX i ON w (k)")
        other.execute("CREATE HOLD h ON i")
    await_hydrated(db, "i")
    first = now(db)
    db.execute("INSERT INTO t VALUES (1), (2)")
    await_true(lambda: _since(db, "t") > first, "the table keeps its history")
    ways.scanned = 0
    assert rows(db, f"SELECT * FROM w WHERE k = 1 AS OF {first}") == [(1, 1)]
    assert rows(db, f"SELECT * FROM w AS OF {first}") == [(1, 1)]
    assert ways.scanned == 0
    with pytest.raises(errors.DataException):
        db.execute(f"SELECT * FROM t AS OF {first}".encode())  # an index on w does not serve reads of t
    assert rows(db, "SELECT * FROM w") == [(1, 2), (2, 1)]
    db.execute("DROP INDEX i CASCADE")
    with pytest.raises(errors.DataException):
        db.execute(f"SELECT * FROM w AS OF {first}".encode())


def _since(db: Connection, name: str) -> int:
    """Returns the read frontier of a relation or index."""
    found = db.execute(
        "SELECT f.read_frontier FROM mz_internal.mz_frontiers f JOIN mz_objects i ON i.id = f.object_id "
        "JOIN mz_schemas s ON s.id = i.schema_id JOIN mz_databases d ON d.id = s.database_id "
        "WHERE i.name = %s AND d.name = current_database()",
        (name,),
    ).fetchall()
    return int(found[0][0])


def test_a_failing_view_fails_only_queries_that_compute_the_error(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (k int, v int)")
    db.execute("CREATE VIEW w AS SELECT k, 10 / v AS q FROM t")
    db.execute("INSERT INTO t VALUES (1, 2)")
    db.execute("CREATE INDEX i ON w (k)")
    await_hydrated(db, "i")
    assert rows(db, "SELECT * FROM w WHERE k = 1") == [(1, 5)]
    db.execute("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(errors.DivisionByZero):
        db.execute("SELECT * FROM w")
    assert rows(db, "SELECT k FROM w") == [(1,), (2,)], "q is not asked for"
    db.execute("DELETE FROM t WHERE v = 0")

    def by_index() -> bool:
        ways.scanned = 0
        assert rows(db, "SELECT * FROM w") == [(1, 5)]
        return ways.scanned == 0

    await_true(by_index, "the index does not go on")


def test_an_index_on_an_expression_serves_lookups(db: Connection, ways: Ways) -> None:
    db.execute("CREATE TABLE t (id int, name text)")
    db.execute("CREATE INDEX i ON t (lower(name))")
    db.execute("INSERT INTO t VALUES (1, 'Ada'), (2, 'ADA'), (3, 'Bob'), (4, NULL)")
    await_hydrated(db, "i")
    ways.scanned = 0
    assert rows(db, "SELECT id FROM t WHERE lower(name) = 'ada'") == [(1,), (2,)]
    assert rows(db, "SELECT * FROM t WHERE lower(name) = %s AND id > 1", "ada") == [(2, "ADA")]
    assert ways.scanned == 0
    assert rows(db, "SELECT id FROM t WHERE upper(name) = 'BOB'") == [(3,)]


def test_index_definitions(db: Connection) -> None:
    db.execute('CREATE TABLE t (a int, "B" int)')
    db.execute("CREATE VIEW v AS SELECT a FROM t")
    db.execute("CREATE DEFAULT INDEX ON t")
    db.execute("CREATE INDEX on_v ON v (a)")
    assert rows(db, "SHOW INDEXES") == [("on_v", "v", "a"), ("t_a_B_idx", "t", 'a, "B"')]
    db.execute("CREATE INDEX later ON t (a) WITH (RETAIN HISTORY FOR '1h')")
    assert rows(db, "SELECT indexname FROM pg_indexes WHERE tablename = 't'") == [("later",), ("t_a_B_idx",)]
    db.execute("ALTER INDEX later SET (RETAIN HISTORY FOR '2h')")
    db.execute("ALTER INDEX later RESET (RETAIN HISTORY)")
    with pytest.raises(errors.FeatureNotSupported, match="system table"):
        db.execute("CREATE VIEW s AS SELECT name FROM mz_objects")
        db.execute("CREATE DEFAULT INDEX ON s")
    with pytest.raises(errors.FeatureNotSupported):
        db.execute("CREATE VIEW n AS SELECT a, now() AS n FROM t")
        db.execute("CREATE DEFAULT INDEX ON n")
    with pytest.raises(errors.FeatureNotSupported):
        db.execute("CREATE INDEX ON t ((a + extract(epoch FROM now())))")
    with pytest.raises(errors.UndefinedColumn):
        db.execute("CREATE INDEX ON t (c)")
    with pytest.raises(errors.WrongObjectType):
        db.execute("CREATE INDEX ON later (a)")
    db.execute("CREATE VIEW constant AS SELECT 1 AS a")
    db.execute("CREATE INDEX ON constant (a)")
    assert rows(db, "SELECT * FROM constant WHERE a = 1") == [(1,)]
    db.execute("DROP VIEW constant")
    db.execute("DROP VIEW v")  # with its index
    db.execute("DROP TABLE t CASCADE")
    assert rows(db, "SHOW INDEXES") == []


def test_an_arrangement_lives_until_its_index_and_dataflows_are_dropped(db: Connection, server: ServerThread) -> None:
    db.execute("CREATE TABLE t (k int, s text)")
    db.execute("INSERT INTO t SELECT n, 's' FROM generate_series(1, 100) AS g(n)")
    db.execute("CREATE INDEX kept ON t (k)")
    await_hydrated(db, "kept")
    arranged = "SELECT sorted_by, rows, bytes > 1000 FROM mz_internal.mz_arrangements WHERE name = 'kept'"
    assert rows(db, arranged) == [("k", 100, True)]
    shared = server.app.coordinator.arrangements.shared
    before = len(shared)
    db.execute("CREATE MATERIALIZED VIEW m AS SELECT x.k, y.s FROM t x JOIN t y ON x.k = y.k")
    assert len(rows(db, "SELECT * FROM m")) == 100
    assert len(shared) == before, "the join looks into the index"
    db.execute("DROP INDEX kept")
    db.execute("INSERT INTO t VALUES (101, 'late')")
    assert rows(db, "SELECT s FROM m WHERE k = 101") == [("late",)]
    assert len(shared) == before
    db.execute("DROP MATERIALIZED VIEW m")
    await_true(lambda: len(shared) == before - 1, "the arrangement stays")
    assert rows(db, arranged) == []
    assert rows(db, "SELECT s FROM t WHERE k = 101") == [("late",)]


def test_an_index_on_a_temporal_filter_drops_expired_rows(db: Connection) -> None:
    db.execute("CREATE TABLE sessions (who text, ends timestamptz)")
    db.execute("CREATE VIEW present AS SELECT who FROM sessions WHERE mz_now() < ends")
    db.execute("CREATE INDEX i ON present (who)")
    db.execute("INSERT INTO sessions VALUES ('ada', '2100-01-01'), ('bob', now() + INTERVAL '1 second')")
    await_hydrated(db, "i")
    assert rows(db, "SELECT * FROM present WHERE who = 'ada'") == [("ada",)]
    await_true(lambda: rows(db, "SELECT * FROM present") == [("ada",)], "bob stays")


# -- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_indexes_survive_kills(tmp_path: Path) -> None:
    """After a kill, indexes on tables, views and materialized views give the same results, also at held times."""
    server = ServerProcess(tmp_path, "--timestamp-interval", "100ms")
    chosen = random.Random(5)
    counts: dict[int, int] = {}
    with connected(server.dsn) as db:
        db.execute("CREATE TABLE t (k int, v int)")
        db.execute("CREATE VIEW w AS SELECT k, count(*) AS n FROM t GROUP BY k")
        db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, max(v) AS m FROM t GROUP BY k")
        db.execute("CREATE INDEX on_t ON t (k)")
        db.execute("CREATE INDEX on_w ON w (k)")
        db.execute("CREATE INDEX on_m ON m (k)")
        db.execute("INSERT INTO t VALUES (0, 0)")
        await_hydrated(db, "on_t", "on_w", "on_m")
        db.execute("CREATE HOLD h ON on_w")
        ((place,),) = db.execute("SELECT at FROM mz_holds").fetchall()
        then = rows(db, f"SELECT * FROM w AS OF {place}")
        counts[0] = 1
        for number in range(30):
            key = chosen.randrange(4)
            db.execute("INSERT INTO t VALUES (%s, %s)", (key, number))
            counts[key] = counts.get(key, 0) + 1
    server.kill()
    for _ in range(2):
        server = ServerProcess(tmp_path, "--timestamp-interval", "100ms")
        with connected(server.dsn) as db:
            for key in range(4):  # may scan the table, because the index may not be hydrated yet
                assert len(rows(db, "SELECT v FROM t WHERE k = %s", key)) == counts[key]
            await_hydrated(db, "on_t", "on_w", "on_m")
            for key in range(4):
                assert len(rows(db, "SELECT v FROM t WHERE k = %s", key)) == counts[key]
                assert rows(db, "SELECT n FROM w WHERE k = %s", key) == [(counts[key],)]
                assert len(rows(db, "SELECT m FROM m WHERE k = %s", key)) == 1
            assert rows(db, "SELECT * FROM w") == sorted(counts.items(), key=repr)
            assert rows(db, f"SELECT * FROM w AS OF {place}") == then
            db.execute("INSERT INTO t VALUES (3, 100)")
            counts[3] += 1
            assert rows(db, "SELECT m FROM m WHERE k = 3") == [(100,)]
            assert rows(db, "SELECT n FROM w WHERE k = 3") == [(counts[3],)]
        server.kill()


def test_a_full_disk_makes_queries_scan_until_the_index_is_rebuilt(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that failed to store updates is rebuilt. No result lacks rows in the meantime."""
    server = ServerThread(tmp_path, engine)
    try:
        with connected(server.dsn()) as db:
            db.execute("CREATE TABLE t (k int)")
            db.execute("CREATE VIEW w AS SELECT k + 0 AS k FROM t")
            db.execute("CREATE INDEX on_t ON t (k)")
            db.execute("CREATE INDEX on_w ON w (k)")
            db.execute("INSERT INTO t VALUES (1)")
            await_hydrated(db, "on_t", "on_w")
            storage = server.app.coordinator.arrangements.arranger
            store = storage.store  # type: ignore[attr-defined]
            left = [4]

            def full(run: Any) -> Any:
                if left[0]:
                    left[0] -= 1
                    raise OSError(28, "No space left on device")
                return store(run)

            monkeypatch.setattr(storage, "store", full)
            for number in range(6):
                db.execute("INSERT INTO t VALUES (1)")
                assert len(rows(db, "SELECT * FROM t WHERE k = 1")) == number + 2
                assert len(rows(db, "SELECT * FROM w WHERE k = 1")) == number + 2
            await_true(lambda: left[0] == 0, "nothing was tried")
            await_hydrated(db, "on_t", "on_w")
            assert len(rows(db, "SELECT * FROM t WHERE k = 1")) == 7
            assert len(rows(db, "SELECT * FROM w WHERE k = 1")) == 7
    finally:
        server.stop()


def test_every_index_has_a_dataflow(db: Connection, server: ServerThread) -> None:
    db.execute("CREATE TABLE t (k int)")
    db.execute("CREATE INDEX i ON t (k)")
    coordinator = server.app.coordinator
    indexes = {id for id, item in coordinator.state.items.items() if isinstance(item, Index)}
    assert coordinator.indexes.arranged.keys() == indexes


def test_frequent_commits_are_inserted_together_and_found_at_once(
    db: Connection, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = server.app.coordinator.arrangements.arranger
    store, stored = storage.store, [0]  # type: ignore[attr-defined]

    def counted(run: Any) -> Any:
        stored[0] += 1
        return store(run)

    db.execute("CREATE TABLE often (k int, v text)")
    db.execute("CREATE INDEX plain ON often (k); CREATE INDEX computed ON often (lower(v))")
    await_hydrated(db, "plain", "computed")
    monkeypatch.setattr(storage, "store", counted)
    commits = 400
    for number in range(commits):
        db.execute("INSERT INTO often VALUES (%s, %s)", (number, f"V{number}"), prepare=True)
    assert 0 < stored[0] < commits / 2  # of two indexes, with merges
    names = "SELECT id FROM mz_indexes WHERE name IN ('plain', 'computed')"
    ((steps,),) = rows(db, f"SELECT sum(steps)::int FROM mz_internal.mz_dataflows WHERE object_id IN ({names})")
    assert 0 < steps < commits / 2  # of two indexes
    for number in range(commits, commits + 20):
        db.execute("INSERT INTO often VALUES (%s, %s)", (number, f"V{number}"))
        assert rows(db, "SELECT v FROM often WHERE k = %s", number) == [(f"V{number}",)]
        assert rows(db, "SELECT k FROM often WHERE lower(v) = %s", f"v{number}") == [(number,)]
