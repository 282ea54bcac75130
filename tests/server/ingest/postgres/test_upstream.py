"""The collections of a source have the rows of the tables in PostgreSQL, from the snapshot on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from catalog.objects.columns import Column
from catalog.source_definition import ForTables
from protocol.pgwire.errors import SqlState
from protocol.pgwire.network import parse_inet
from server.ingest import ingestion
from server.ingest.ingestion import Status
from server.ingest.postgres import snapshot
from server.ingest.postgres.publication import PublishedColumn, PublishedTable, ReplicaIdentity
from tests.server.ingest.postgres.harness import Source, definition, running

pytestmark = pytest.mark.slow

Database = tuple[str, Any]

LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)"
"""A text that is stored out of line: 6,400 characters that do not compress."""


@asynccontextmanager
async def following(directory: Path, database: Database, setup: str) -> AsyncIterator[tuple[Source, Any]]:
    """A source over all tables that `setup` creates; the snapshot is committed."""
    dsn, upstream = database
    await upstream.execute(f"{setup}; CREATE PUBLICATION pub FOR ALL TABLES")
    async with running(directory, definition(dsn)) as source:
        await source.reached(upstream)
        for name in source.ids:
            await source.same(upstream, name)
        yield source, upstream


async def test_a_snapshot_and_then_changes(tmp_path: Path, source_database: Database) -> None:
    setup = """
        CREATE TABLE t (id int4 PRIMARY KEY, name text NOT NULL, amount numeric(10, 2));
        CREATE TABLE f (a int4, b text); ALTER TABLE f REPLICA IDENTITY FULL;
        INSERT INTO t SELECT i, 'name ' || i, i / 3.0 FROM generate_series(1, 100) i;
        INSERT INTO f VALUES (1, 'x'), (1, 'x'), (NULL, E'a\\tb\\\\')
    """
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute("""
            INSERT INTO t VALUES (101, 'new', NULL);
            UPDATE t SET amount = amount + 1 WHERE id <= 10;
            UPDATE t SET id = id + 1000 WHERE id > 90;
            DELETE FROM t WHERE id BETWEEN 20 AND 30;
            UPDATE f SET b = 'y' WHERE ctid IN (SELECT ctid FROM f WHERE b = 'x' LIMIT 1);
            DELETE FROM f WHERE a IS NULL;
        """)
        await source.reached(upstream)
        await source.same(upstream, "t")
        await source.same(upstream, "f")


async def test_truncate(tmp_path: Path, source_database: Database) -> None:
    setup = "CREATE TABLE t (id int4 PRIMARY KEY); CREATE TABLE u AS SELECT 1 AS id; INSERT INTO t VALUES (1)"
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute("""
            BEGIN; INSERT INTO t VALUES (5); DELETE FROM t WHERE id = 1; TRUNCATE t, u; INSERT INTO t VALUES (5), (6);
            UPDATE t SET id = 7 WHERE id = 6; COMMIT
        """)
        await source.reached(upstream)
        assert await source.rows("t") == [(5,), (7,)]
        assert await source.rows("u") == []


async def test_values_that_are_stored_out_of_line(tmp_path: Path, source_database: Database) -> None:
    setup = f"""
        CREATE TABLE t (id int4 PRIMARY KEY, n int4, long text); ALTER TABLE t ALTER long SET STORAGE EXTERNAL;
        CREATE TABLE f (id int4, long text); ALTER TABLE f ALTER long SET STORAGE EXTERNAL;
        ALTER TABLE f REPLICA IDENTITY FULL;
        CREATE TABLE k (key text PRIMARY KEY, n int4); ALTER TABLE k ALTER key SET STORAGE EXTERNAL;
        INSERT INTO t SELECT i, 0, i || {LONG} FROM generate_series(1, 4) i;
        INSERT INTO f SELECT i, i || {LONG} FROM generate_series(1, 3) i;
        INSERT INTO k SELECT left({LONG}, 2500), 1
    """
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute(f"""
            UPDATE t SET n = 1 WHERE id = 1;
            BEGIN; UPDATE t SET n = n + 1; UPDATE t SET id = 20, n = 3 WHERE id = 2;
            UPDATE t SET n = 5 WHERE id = 20; COMMIT;
            BEGIN; INSERT INTO t SELECT 30, 0, {LONG}; UPDATE t SET n = 1 WHERE id = 30; COMMIT;
            UPDATE t SET long = NULL WHERE id = 3;
            UPDATE f SET id = id + 1; DELETE FROM f WHERE id = 2;
            UPDATE k SET n = 2
        """)
        await source.reached(upstream)
        for name in "tfk":
            await source.same(upstream, name)


async def test_replica_identities(tmp_path: Path, source_database: Database) -> None:
    setup = """
        CREATE TABLE i (a int4 NOT NULL, b text NOT NULL, n int4); CREATE UNIQUE INDEX i_key ON i (b, a);
        ALTER TABLE i REPLICA IDENTITY USING INDEX i_key; INSERT INTO i VALUES (1, 'x', 1), (1, 'y', 1), (2, 'x', 1);
        CREATE TABLE n (a int4); ALTER TABLE n REPLICA IDENTITY NOTHING; INSERT INTO n VALUES (1)
    """
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute(
            "UPDATE i SET n = 2 WHERE a = 1; UPDATE i SET b = 'z' WHERE a = 2; INSERT INTO n VALUES (2)"
        )
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await upstream.execute("DELETE FROM n")
        await upstream.execute(
            "ALTER TABLE i REPLICA IDENTITY FULL; DELETE FROM i WHERE b = 'x'; INSERT INTO i VALUES (3, 'x')"
        )
        await upstream.execute("DELETE FROM i WHERE b = 'y'; ALTER TABLE i REPLICA IDENTITY USING INDEX i_key")
        await upstream.execute("UPDATE i SET n = 7 WHERE a = 2; TRUNCATE n")
        await source.reached(upstream)
        await source.same(upstream, "i")
        await source.same(upstream, "n")


async def test_partitions_by_their_root(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    await upstream.execute("""
        CREATE TABLE p (id int4 PRIMARY KEY, v text) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
        CREATE TABLE p2 (v text, id int4 NOT NULL); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
        INSERT INTO p SELECT i, 'v' || i FROM generate_series(0, 19) i;
        CREATE PUBLICATION pub FOR TABLE p WITH (publish_via_partition_root = true)
    """)
    async with running(tmp_path, definition(dsn)) as source:
        await source.reached(upstream)
        assert list(source.ids) == ["p"]
        await source.same(upstream, "p")
        await upstream.execute(
            "UPDATE p SET id = id + 10 WHERE id < 5 AND id + 10 > 19; UPDATE p SET v = 'w' WHERE id > 8"
        )
        await upstream.execute("DELETE FROM p WHERE id = 15; UPDATE p SET id = 15 WHERE id = 3")
        await upstream.execute(
            "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30); INSERT INTO p VALUES (25, 'x')"
        )
        await source.reached(upstream)
        await source.same(upstream, "p")
        await upstream.execute("TRUNCATE p")
        await source.reached(upstream)
        assert await source.rows("p") == []


async def test_a_column_list_and_a_row_filter(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    await upstream.execute("""
        CREATE TABLE t (id int4 PRIMARY KEY, secret text, n int4);
        INSERT INTO t SELECT i, 'secret', i FROM generate_series(1, 10) i;
        ALTER TABLE t REPLICA IDENTITY DEFAULT;
        CREATE PUBLICATION pub FOR TABLE t (id, n) WHERE (id > 5)
    """)
    async with running(tmp_path, definition(dsn)) as source:
        await source.reached(upstream)
        assert await source.rows("t") == sorted([(i, i) for i in range(6, 11)], key=repr)
        await upstream.execute("UPDATE t SET id = id + 10 WHERE id IN (1, 6); UPDATE t SET id = -7 WHERE id = 7")
        await source.reached(upstream)
        assert await source.rows("t") == sorted([(8, 8), (9, 9), (10, 10), (11, 1), (16, 6)], key=repr)


async def test_types(tmp_path: Path, source_database: Database) -> None:
    setup = """
        CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN price AS numeric(8, 2);
        CREATE TABLE t (id int8 PRIMARY KEY, b bool, s int2, f float8, r float4, d date, tm time, ts timestamp,
            tz timestamptz, iv interval, by bytea, js jsonb, u uuid, a int4[], m mood, p price, c char(3), i inet,
            g int8 GENERATED ALWAYS AS (id + 1) STORED, ts3 timestamp(3))
    """
    insert = """
        INSERT INTO t VALUES ({}, true, 3, 0.1, 1e-7, '2024-02-29', '12:34:56.789', '1999-12-31 23:59:59.999999',
        '2024-01-01 00:00+05', '1 mon 2 days 03:04:05.6', '\\x00ff', '{{"a": [1, null]}}',
        '00000000-0000-0000-0000-0000000000ff', '{{1,NULL,3}}', 'ok', 12.5, 'x', '10.0.0.1/8', DEFAULT, now())
    """
    _, upstream = source_database
    async with following(tmp_path, source_database, setup) as (source, _):
        await upstream.execute(insert.format(1))
        await upstream.execute(insert.format(2))
        await upstream.execute("INSERT INTO t (id) VALUES (3)")
        await source.reached(upstream)
        streamed = await source.table("t")
    again = replace(definition(source_database[0]), identity="again")
    async with running(tmp_path / "second", again) as source:
        await source.reached(upstream)
        copied = await source.table("t")
    assert streamed.sort_by("c0").to_pylist() == copied.sort_by("c0").to_pylist()
    first = streamed.sort_by("c0").to_pylist()[0]
    assert [first[f"c{n}"] for n in (0, 1, 3, 10, 13, 14, 17)] == [
        1,
        True,
        0.1,
        b"\0\xff",
        [1, None, 3],
        "ok",
        parse_inet("10.0.0.1/8"),
    ]
    assert streamed.num_columns == 19


async def test_arrays_have_the_declared_number_of_dimensions(tmp_path: Path, source_database: Database) -> None:
    setup = """
        CREATE DOMAIN square AS int4[][];
        CREATE TABLE t (id int4 PRIMARY KEY, m int4[][], b text[][][], s square, one int4[]);
        INSERT INTO t VALUES (1, '{{1,2},{3,NULL}}', '{{{a},{"b c"}}}', '{{5}}', '{6}')
    """
    async with following(tmp_path, source_database, setup) as (source, upstream):
        expected = ["int32", "list<list<int32>>", "list<list<list<string>>>", "list<list<int32>>", "list<int32>"]
        assert [str(type).replace("item: ", "") for type in (await source.table("t")).schema.types] == expected
        await upstream.execute("INSERT INTO t VALUES (2, '{}', NULL, '{{7,8}}', '{}')")
        await upstream.execute("UPDATE t SET m = m || '{5,6}' WHERE id = 1")
        await source.reached(upstream)
        await source.same(upstream, "t")
        assert (1, [[1, 2], [3, None], [5, 6]], [[["a"], ["b c"]]], [[5]], [6]) in await source.rows("t")


async def test_a_table_whose_arrays_have_other_dimensions_stops(tmp_path: Path, source_database: Database) -> None:
    setup = "CREATE TABLE t (id int4 PRIMARY KEY, m int4[][]); CREATE TABLE u (id int4 PRIMARY KEY, m int4[])"
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute("INSERT INTO t VALUES (1, '{1,2}')")
        await upstream.execute("INSERT INTO u VALUES (1, '{{1,2}}')")
        await source.reached(upstream)
        messages = [source.statistics.errors[source.ids[name]].message for name in "tu"]
        assert messages[0].endswith("an array of 1 dimension as a value of type integer[][] is not supported")
        assert messages[1].endswith("an array of 2 dimensions as a value of type integer[] is not supported")


@pytest.mark.parametrize(
    ("spelling", "column", "is_missing"),
    [
        ("int4[][]", Column("m", "int4[][]"), False),
        ("int4[][]", Column("m", "int4[]"), False),  # of a collection of an earlier version
        ("int4[]", Column("m", "text"), False),
        ("int4[]", Column("m", "int8[]"), True),
        ("int4[]", Column("n", "text"), True),
    ],
)
def test_a_table_has_the_columns_of_its_collection(spelling: str, column: Column, is_missing: bool) -> None:
    published = PublishedColumn("m", 1007, -1, spelling, False, False, 1)
    table = PublishedTable(1, "public", "t", ReplicaIdentity.DEFAULT, (published,), None, None, True)
    assert table.missing([column]) == (column if is_missing else None)


async def test_a_large_transaction_is_one_commit_in_bounded_memory(
    tmp_path: Path, source_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "READ_BYTES_MAX", 20_000)
    monkeypatch.setattr("server.ingest.postgres.replication.TAKE_BYTES", 10_000)
    setup = "CREATE TABLE t (id int4 PRIMARY KEY, v text); CREATE TABLE f (a int4); ALTER TABLE f REPLICA IDENTITY FULL"
    async with following(tmp_path, source_database, setup) as (source, upstream):
        before = source.coordinator.latest_time()
        await upstream.execute("""
            BEGIN;
            INSERT INTO t SELECT i, repeat('x', 50) FROM generate_series(1, 3000) i;
            INSERT INTO f SELECT i FROM generate_series(1, 3000) i;
            UPDATE t SET v = 'y' WHERE id % 3 = 0;
            UPDATE t SET id = id + 10000 WHERE id % 5 = 0;
            DELETE FROM t WHERE id % 7 = 0;
            UPDATE f SET a = a + 1;
            COMMIT
        """)
        await source.reached(upstream)
        await source.same(upstream, "t")
        await source.same(upstream, "f")
        assert len({time for name in "tf" for time in source.times(name) if time > before}) == 1


async def test_a_row_that_is_larger_than_all_buffers(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY, v text)") as (
        source,
        upstream,
    ):
        await upstream.execute("INSERT INTO t VALUES (1, repeat('x', 12000000)), (2, 'y')")
        await source.reached(upstream)
        await source.same(upstream, "t")


async def test_a_table_is_copied_in_ranges_and_written_in_pieces(
    tmp_path: Path, source_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "RANGE_BYTES", 20_000)
    monkeypatch.setattr(snapshot, "PAYLOAD_BYTES", 30_000)
    monkeypatch.setattr(snapshot, "GATHER_BYTES", 4_000)
    setup = "CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 20000) i; CREATE TABLE e (a int4)"
    async with following(tmp_path, source_database, setup) as (source, _):
        assert source.statistics.snapshot_records_staged == 20_000
        assert len(source.times("t")) == 1


@pytest.mark.parametrize(("analyze", "known"), [("ANALYZE", 100), ("ANALYZE t", None), ("SELECT 1", None)])
async def test_the_number_of_rows_is_known_if_all_tables_were_analyzed(
    tmp_path: Path, source_database: Database, analyze: str, known: int | None
) -> None:
    setup = "CREATE TABLE t AS SELECT i FROM generate_series(1, 100) i; CREATE TABLE u (a int4)"
    async with following(tmp_path, source_database, f"{setup}; {analyze}") as (source, _):
        statistics = source.statistics
        assert (statistics.snapshot_records_known, statistics.snapshot_records_staged) == (known, 100)


async def test_a_position_is_committed_and_confirmed(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY)") as (source, upstream):
        await upstream.execute("INSERT INTO t VALUES (1)")
        end = await upstream.fetchval("SELECT pg_current_wal_lsn()")
        query = "SELECT confirmed_flush_lsn >= $1 FROM pg_replication_slots WHERE database = current_database()"
        await _until(upstream, query, end)
        assert await source.rows("t") == [(1,)]
    async with running(tmp_path, definition(source_database[0])) as source:  # nothing is copied or applied again
        await upstream.execute("UPDATE t SET id = 2")
        await source.reached(upstream)
        assert await source.rows("t") == [(2,)]
        assert source.statistics.snapshot_records_staged is None


async def test_a_table_that_is_added_later_is_copied_at_a_time_of_the_others(
    tmp_path: Path, source_database: Database
) -> None:
    dsn, upstream = source_database
    setup = "CREATE TABLE t (id int4 PRIMARY KEY); CREATE TABLE late (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)"
    await upstream.execute(f"{setup}; INSERT INTO late VALUES (1); CREATE PUBLICATION pub FOR ALL TABLES")
    only = definition(dsn, ForTables(tables=(("t", None),)))
    async with running(tmp_path, only) as source:
        await source.reached(upstream)
    await upstream.execute("BEGIN; INSERT INTO t VALUES (2); INSERT INTO late VALUES (2); COMMIT")
    async with running(tmp_path, definition(dsn)) as source:
        while not source.times("late"):
            assert source.ingestion.status is not Status.FAILED
            await upstream.execute("UPDATE t SET id = id + 10; UPDATE late SET id = id + 10")
        await upstream.execute("UPDATE t SET id = id + 10; UPDATE late SET id = id + 10")
        await source.reached(upstream)
        for time in source.times("late"):
            assert await source.rows("t", time) == await source.rows("late", time)
        await source.same(upstream, "t")
        await source.same(upstream, "late")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE t DROP COLUMN v", 'table "public.t": column "v" was dropped or renamed'),
        ("ALTER TABLE t RENAME v TO w", 'table "public.t": column "v" was dropped or renamed'),
        (
            "ALTER TABLE t DROP COLUMN v, ADD COLUMN v int4",
            'table "public.t": column "v" was dropped and added again',
        ),
        (  # the last column, so that the relation is described as before
            "ALTER TABLE t DROP COLUMN n, ADD COLUMN n numeric(8, 2)",
            'table "public.t": column "n" was dropped and added again',
        ),
        ("ALTER TABLE t ALTER v TYPE int8", 'table "public.t": the type of column "v" was changed'),
        ("ALTER TABLE t ALTER n TYPE numeric(5, 1)", 'table "public.t": the type of column "n" was changed'),
        (
            "INSERT INTO t (id, n) VALUES (90, 'NaN')",
            'table "public.t", column "n": numeric value "NaN" is not supported',
        ),
    ],
)
async def test_an_incompatible_change_stops_its_table_alone(
    tmp_path: Path, source_database: Database, change: str, message: str
) -> None:
    setup = """
        CREATE TABLE t (id int4 PRIMARY KEY, v int4, n numeric(8, 2)); CREATE TABLE o (a int4);
        INSERT INTO t VALUES (1, 2, 3)
    """
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute(f"{change}; INSERT INTO t (id) VALUES (50); INSERT INTO o VALUES (1)")
        await source.reached(upstream)
        assert source.statistics.errors[source.ids["t"]].message == message
        assert await source.rows("o") == [(1,)]
        assert len(await source.rows("t")) == 1


async def test_a_table_that_stopped_is_not_read_after_a_restart(tmp_path: Path, source_database: Database) -> None:
    setup = "CREATE TABLE t (id int4 PRIMARY KEY, v int4); CREATE TABLE o (a int4)"
    async with following(tmp_path, source_database, setup) as (source, upstream):
        await upstream.execute("ALTER TABLE t ALTER v TYPE int8; INSERT INTO t VALUES (1, 1)")
        await source.reached(upstream)
        (stopped,) = source.statistics.errors.values()
    async with running(tmp_path, definition(source_database[0])) as source:
        await upstream.execute("INSERT INTO o VALUES (2); INSERT INTO t VALUES (2, 2)")
        await source.reached(upstream)
        assert source.statistics.errors[source.ids["t"]].message == stopped.message
        assert (await source.rows("o"), await source.rows("t")) == ([(2,)], [])


async def test_added_columns_are_ignored(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY)") as (source, upstream):
        await upstream.execute(
            "ALTER TABLE t ADD COLUMN v text DEFAULT 'x'; INSERT INTO t VALUES (1, 'y'); UPDATE t SET id = 2"
        )
        await upstream.execute("ALTER TABLE t RENAME TO renamed; INSERT INTO renamed VALUES (3)")
        await source.reached(upstream)
        assert await source.rows("t") == [(2,), (3,)]
        assert source.statistics.errors == {}


async def test_a_value_that_the_snapshot_cannot_have_stops_its_table_alone(
    tmp_path: Path, source_database: Database
) -> None:
    dsn, upstream = source_database
    await upstream.execute("""
        CREATE TABLE t (id int4 PRIMARY KEY, n numeric); INSERT INTO t VALUES (1, 'NaN');
        CREATE TABLE "a: b" ("c d" int4[]); INSERT INTO "a: b" VALUES ('[2:3]={1,2}');
        CREATE TABLE o AS SELECT 1 AS a;
        CREATE PUBLICATION pub FOR ALL TABLES
    """)
    async with running(tmp_path, definition(dsn)) as source:
        await source.reached(upstream)
        assert await source.rows("o") == [(1,)]
        errors = source.statistics.errors
        assert errors[source.ids["t"]].message == 'table "public.t", column "n": numeric value "NaN" is not supported'
        assert errors[source.ids["a: b"]].message == (
            'table "public.a: b", column "c d": array bounds are not supported'
        )
        assert {error.hint for error in errors.values()} == {
            "Name the column in TEXT COLUMNS, or leave it out of the publication."
        }
    async with running(tmp_path / "text", definition(dsn, text_columns="public.t.n", exclude_columns="t.id")) as source:
        await source.reached(upstream)
        assert await source.rows("t") == [("NaN",)]


async def test_a_table_that_leaves_the_publication_stops(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    await upstream.execute("CREATE TABLE t (id int4); CREATE TABLE o (a int4); CREATE PUBLICATION pub FOR TABLE t, o")
    async with running(tmp_path, definition(dsn)) as source:
        await source.reached(upstream)
    await upstream.execute("ALTER PUBLICATION pub DROP TABLE t; INSERT INTO t VALUES (1); INSERT INTO o VALUES (1)")
    async with running(tmp_path, definition(dsn, ForTables(tables=(("o", None),))), ["t"]) as source:
        await source.reached(upstream)
        error = source.statistics.errors[source.ids["t"]]
        assert (error.sqlstate, error.message) == ("42P01", 'table "public.t" is no longer in publication "pub"')
        assert await source.rows("o") == [(1,)]


async def test_a_slot_that_is_lost_ends_the_source(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY)") as (_, upstream):
        pass
    (slot,) = await upstream.fetchrow("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    await _dropped(upstream, slot)
    await _fails(tmp_path, source_database[0], f'replication slot "{slot}" does not exist')


async def test_a_slot_that_another_client_advanced_ends_the_source(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY)") as (_, upstream):
        pass
    (slot,) = await upstream.fetchrow("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    await upstream.execute("INSERT INTO t VALUES (1)")
    await _until(upstream, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1", slot)
    await upstream.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    await _fails(tmp_path, source_database[0], f'replication slot "{slot}" was advanced beyond')


async def _until(upstream: Any, query: str, *arguments: object) -> None:
    """Waits until a query returns true."""
    while not await upstream.fetchval(query, *arguments):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _dropped(upstream: Any, slot: str) -> None:
    await _until(upstream, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1", slot)
    await upstream.execute(f"SELECT pg_drop_replication_slot('{slot}')")


async def _fails(directory: Path, dsn: str, message: str) -> None:
    async with running(directory, definition(dsn)) as source:
        while source.ingestion.status is not Status.FAILED:
            await source.coordinator.frontiers.moved.wait()
        assert source.ingestion.error is not None
        assert message in source.ingestion.error.message
        assert source.ingestion.error.hint == "Drop the source and create it again."
        assert getattr(source.ingestion.error, "sqlstate", None) == SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE


async def test_a_lost_connection_is_opened_again(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database, "CREATE TABLE t (id int4 PRIMARY KEY)") as (source, upstream):
        for number in range(5):
            await upstream.execute(f"INSERT INTO t VALUES ({number})")
            await upstream.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()"
            )
        await source.reached(upstream)
        assert await source.rows("t") == [(number,) for number in range(5)]


async def test_names_with_dots_quotes_and_capitals(tmp_path: Path, source_database: Database) -> None:
    setup = """
        CREATE SCHEMA "A.b"; CREATE TABLE "A.b"."c ""d"".e" ("Id" int4 PRIMARY KEY, "x.y" text);
        INSERT INTO "A.b"."c ""d"".e" VALUES (1, 'x'); CREATE PUBLICATION pub FOR ALL TABLES
    """
    dsn, upstream = source_database
    await upstream.execute(setup)
    async with running(tmp_path, definition(dsn)) as source:
        await upstream.execute("""UPDATE "A.b"."c ""d"".e" SET "Id" = 2""")
        await source.reached(upstream)
        await source.same(upstream, 'c "d".e')
        assert list(source.references.values()) == ['"A.b"."c ""d"".e"']


async def test_an_update_without_the_columns_of_its_key_stops_its_table(
    tmp_path: Path, source_database: Database
) -> None:
    dsn, upstream = source_database
    await upstream.execute("CREATE TABLE t (id int4 PRIMARY KEY, v int4); CREATE PUBLICATION pub FOR ALL TABLES")
    async with running(tmp_path, definition(dsn, exclude_columns="public.t.id")) as source:
        await upstream.execute("INSERT INTO t VALUES (1, 1)")
        await source.reached(upstream)
        assert await source.rows("t") == [(1,)]
        await upstream.execute("UPDATE t SET v = 2")
        await source.reached(upstream)
        (error,) = source.statistics.errors.values()
        assert "does not have the columns of the replica identity" in error.message


async def test_row_security_is_not_applied_silently(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    await upstream.execute("""
        CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1), (2); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        CREATE ROLE restricted LOGIN REPLICATION; CREATE POLICY p ON t USING (id = 1); GRANT SELECT ON t TO restricted;
        CREATE PUBLICATION pub FOR ALL TABLES
    """)
    found = definition(dsn)
    restricted = replace(found, connection={**found.connection, "user": "restricted"})
    async with running(tmp_path, restricted) as source:
        while source.ingestion.status is not Status.FAILED:
            await source.coordinator.frontiers.moved.wait()
        assert "row-level security policy" in str(source.ingestion.error)
        assert await source.rows("t") == []
    await upstream.execute("DROP OWNED BY restricted; DROP ROLE restricted")


async def test_a_table_is_added_while_nothing_happens(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    await upstream.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE late AS SELECT 2 AS a")
    await upstream.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    async with running(tmp_path, definition(dsn, ForTables(tables=(("t", None),)))) as source:
        await source.reached(upstream)
    async with running(tmp_path, definition(dsn)) as source:
        await source.until(lambda: bool(source.times("late")))
        assert (await source.rows("t"), await source.rows("late")) == ([(1,)], [(2,)])
