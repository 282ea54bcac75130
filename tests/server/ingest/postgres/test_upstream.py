"""The collections of a source have the rows of the tables in PostgreSQL, from the snapshot on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.ingest.postgres.harness import definition, running


async def test_a_snapshot_and_then_changes(tmp_path: Path, source_database: tuple[str, Any]) -> None:
    dsn, upstream = source_database
    await upstream.execute("""
        CREATE TABLE t (id int4 PRIMARY KEY, name text NOT NULL, amount numeric(10, 2));
        CREATE TABLE f (a int4, b text); ALTER TABLE f REPLICA IDENTITY FULL;
        INSERT INTO t SELECT i, 'name ' || i, i / 3.0 FROM generate_series(1, 100) i;
        INSERT INTO f VALUES (1, 'x'), (1, 'x'), (NULL, E'a\\tb\\\\');
        CREATE PUBLICATION pub FOR ALL TABLES;
    """)
    async with running(tmp_path, definition(dsn)) as source:
        await source.reached(upstream)
        await source.same(upstream, "t")
        await source.same(upstream, "f")
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
        await upstream.execute(
            "BEGIN; INSERT INTO t VALUES (5000, 'x', 1); TRUNCATE t; INSERT INTO t VALUES (1, 'y', 2); COMMIT"
        )
        await source.reached(upstream)
        await source.same(upstream, "t")
