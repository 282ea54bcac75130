"""What PostgreSQL loses or changes while a source reads it: the status with its hint, and that nothing is skipped.

A source that cannot continue fails, and its collections keep their rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from catalog.objects.secrets import Secret
from server.ingest.ingestion import Status
from server.ingest.kinds import kind_of
from server.ingest.upstream import UpstreamError
from tests.fix_postgres import PostgresServer
from tests.server.ingest.postgres.harness import Source, definition, running

Database = tuple[str, Any]

SETUP = "CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION pub FOR ALL TABLES"
RECREATE = "Drop the source and create it again."
REPUBLISH = 'After CREATE PUBLICATION "pub" there, drop the source and create it again.'
TERMINATE = (
    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND active"
)


@asynccontextmanager
async def following(directory: Path, database: Database) -> AsyncIterator[tuple[Source, Any]]:
    """A source over the table of SETUP, which it has read."""
    dsn, upstream = database
    await upstream.execute(SETUP)
    async with running(directory, definition(dsn)) as source:
        await source.reached(upstream)
        yield source, upstream


async def reported(source: Source, status: Status, message: str, hint: str, sqlstate: str | None = None) -> None:
    """Waits for a status with this reason, and checks its hint. The rows are those that were read before."""
    while source.ingestion.status is not status or message not in str(source.ingestion.error):
        assert source.ingestion.status is not Status.FAILED, source.ingestion.error
        await source.coordinator.frontiers.moved.wait()
    error = source.ingestion.error
    assert error is not None
    assert (error.hint, getattr(error, "sqlstate", None)) == (hint, sqlstate)
    assert await source.rows("t") == [(1,)]


async def slot_of(upstream: Any) -> str:
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return str(await upstream.fetchval(query))


async def test_the_slot_of_a_server_that_cannot_be_reached_is_named() -> None:
    unreachable = definition("postgresql://postgres@127.0.0.1:1/postgres")
    message = 'could not drop replication slot "tidewire_.*" of PostgreSQL "127.0.0.1:1".*: could not connect'
    with pytest.raises(UpstreamError, match=message) as failed:
        await kind_of("postgres").dropped(unreachable)
    assert failed.value.hint == "Drop it there with pg_drop_replication_slot(), or its WAL will be kept."


async def test_a_slot_that_is_dropped_while_it_is_read(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database) as (source, upstream):
        slot = await slot_of(upstream)
        while await upstream.fetchval("SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", slot):
            await upstream.execute(TERMINATE)
            with suppress(asyncpg.ObjectInUseError):  # it is not released yet, or the source has connected again
                await upstream.execute(f"SELECT pg_drop_replication_slot('{slot}')")
        await upstream.execute("INSERT INTO t VALUES (2)")
        await reported(source, Status.FAILED, f'replication slot "{slot}" does not exist', RECREATE, "55000")


@pytest.mark.slow
async def test_a_slot_that_is_invalidated(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical\nmax_slot_wal_keep_size=1MB")
    try:
        upstream = await asyncpg.connect(postgres.dsn)
        async with following(tmp_path, (postgres.dsn, upstream)):
            pass
        await upstream.execute("INSERT INTO t VALUES (2)")
        slot = await slot_of(upstream)
        while await upstream.fetchval("SELECT wal_status FROM pg_replication_slots") != "lost":
            await upstream.execute("INSERT INTO t SELECT max(id) + 1 FROM t")
            await upstream.execute("SELECT pg_switch_wal()")
            await upstream.execute("CHECKPOINT")
        await upstream.close()
        async with running(tmp_path, definition(postgres.dsn)) as source:
            message = f'replication slot "{slot}" has lost changes that were not read'
            hint = f"Raise max_slot_wal_keep_size there. {RECREATE}"
            await reported(source, Status.FAILED, message, hint, "55000")
    finally:
        postgres.stop()


@pytest.mark.parametrize("then", ["INSERT INTO t VALUES (2)", TERMINATE])
async def test_a_publication_that_is_dropped(tmp_path: Path, source_database: Database, then: str) -> None:
    async with following(tmp_path, source_database) as (source, upstream):
        await upstream.execute("DROP PUBLICATION pub")
        await upstream.execute(then)
        await reported(source, Status.FAILED, 'publication "pub" does not exist', REPUBLISH, "42704")


async def test_a_publication_that_did_not_exist_during_a_change(tmp_path: Path, source_database: Database) -> None:
    async with following(tmp_path, source_database) as (_, upstream):
        pass
    for statement in ("DROP PUBLICATION pub", "INSERT INTO t VALUES (2)", "CREATE PUBLICATION pub FOR ALL TABLES"):
        await upstream.execute(statement)
    async with running(tmp_path, definition(source_database[0])) as source:
        await reported(source, Status.FAILED, 'publication "pub" does not exist', REPUBLISH, "42704")


async def test_a_password_that_is_changed(tmp_path: Path, source_database: Database) -> None:
    dsn, upstream = source_database
    found = definition(dsn)

    def with_password(password: str) -> Any:
        return replace(found, connection={**found.connection, "user": "reader", "password": Secret(password)})

    await upstream.execute(f"{SETUP}; CREATE ROLE reader LOGIN REPLICATION PASSWORD 'old'; GRANT SELECT ON t TO reader")
    requires_password(Path(await upstream.fetchval("SHOW hba_file")), "reader")
    await upstream.execute("SELECT pg_reload_conf()")
    try:
        while await may_connect(dsn, "reader", "wrong"):
            pass  # it has not read the file yet
        async with running(tmp_path, with_password("old")) as source:
            await source.reached(upstream)
            await upstream.execute("ALTER ROLE reader PASSWORD 'new'")
            await upstream.execute(TERMINATE)
            message = 'as user "reader": password authentication failed for user "reader"'
            hint = "Change the password of the connection: ALTER SECRET ... AS ..., which the source uses at once."
            await reported(source, Status.STALLED, message, hint)
        async with running(tmp_path, with_password("new")) as source:
            await upstream.execute("INSERT INTO t VALUES (3)")
            await source.reached(upstream)
            assert await source.rows("t") == [(1,), (3,)]
    finally:
        await upstream.execute("DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.slow
async def test_a_new_timeline_that_has_everything_that_was_read(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical")
    try:
        upstream = await asyncpg.connect(postgres.dsn)
        async with following(tmp_path, (postgres.dsn, upstream)) as (source, _):
            await upstream.close()
            for timeline in (2, 3):
                postgres.shut_down()
                postgres.begin_timeline()
                postgres.start()
                upstream = await promoted(postgres, timeline)
                await upstream.execute(f"INSERT INTO t VALUES ({timeline})")
                await source.reached(upstream)
                await source.same(upstream, "t")
                await upstream.close()
    finally:
        postgres.stop()


@pytest.mark.slow
async def test_a_replica_is_read_when_it_is_promoted(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical")
    try:
        upstream = await asyncpg.connect(postgres.dsn)
        async with following(tmp_path, (postgres.dsn, upstream)) as (source, _):
            await upstream.close()
            postgres.shut_down()
            (postgres.data / "standby.signal").touch()
            postgres.start()
            hint = "A source reads from a primary. It goes on when the server is promoted or has recovered."
            await reported(source, Status.STALLED, "the server is in recovery", hint)
            upstream = await asyncpg.connect(postgres.dsn)
            await upstream.execute("SELECT pg_promote()")
            await upstream.execute("INSERT INTO t VALUES (2)")
            await source.reached(upstream)
            await source.same(upstream, "t")
            await upstream.close()
    finally:
        postgres.stop()


@pytest.mark.slow
async def test_a_new_timeline_that_lacks_what_was_read(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical")
    try:
        upstream = await asyncpg.connect(postgres.dsn)
        async with following(tmp_path, (postgres.dsn, upstream)):
            pass
        await upstream.close()
        postgres.shut_down()
        postgres.copy_data()
        postgres.start()
        upstream = await asyncpg.connect(postgres.dsn)
        await upstream.execute("INSERT INTO t VALUES (2); DELETE FROM t WHERE id = 2")
        async with running(tmp_path, definition(postgres.dsn)) as source:
            await source.reached(upstream)
        end = await upstream.fetchval("SELECT pg_current_wal_insert_lsn()::text")
        await upstream.close()
        postgres.shut_down()
        postgres.restore()
        postgres.begin_timeline()
        postgres.start()
        upstream = await promoted(postgres, 2)
        while await upstream.fetchval(f"SELECT pg_current_wal_insert_lsn() <= '{end}'::pg_lsn"):
            await upstream.execute("INSERT INTO t SELECT max(id) + 1 FROM t")
        await upstream.close()
        async with running(tmp_path, definition(postgres.dsn)) as source:
            await reported(source, Status.FAILED, "the server's timeline 2 left timeline 1 at ", RECREATE, "55000")
    finally:
        postgres.stop()


def requires_password(hba: Path, user: str) -> None:
    hba.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n" + hba.read_text())


async def may_connect(dsn: str, user: str, password: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn, user=user, password=password)
    except asyncpg.InvalidPasswordError:
        return False
    await connection.close()
    return True


async def promoted(postgres: PostgresServer, timeline: int) -> Any:
    """A connection to the server when it has begun a timeline."""
    upstream = await asyncpg.connect(postgres.dsn)
    while await upstream.fetchval("SELECT pg_is_in_recovery()"):
        pass
    assert await upstream.fetchval("SELECT timeline_id FROM pg_control_checkpoint()") <= timeline
    await upstream.execute("CHECKPOINT")
    assert await upstream.fetchval("SELECT timeline_id FROM pg_control_checkpoint()") == timeline
    return upstream
