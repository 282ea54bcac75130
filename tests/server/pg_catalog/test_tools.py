"""The queries over keys and indexes that ORMs, drivers and tools send, compared with PostgreSQL.

`tools.sql` has the tools' queries as they send them, with names of `tools_schema.sql`. `vectors.sql` has each operation
on `int2vector`, `oidvector` and arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerThread
from tests.server.pg_catalog.test_pg_catalog import TEXT_TYPES, served

HERE = Path(__file__).parent


def statements(name: str) -> list[tuple[str, str]]:
    """Each statement of a file, with the last comment before it."""
    found, comment = [], ""
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("-- "):
            comment = line.removeprefix("-- ")
        else:
            found.append((comment, line.removesuffix(";")))
    return found


@pytest.fixture(scope="module")
def tidewire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    yield from served(tmp_path_factory.mktemp("data"), [text for _, text in statements("tools_schema.sql")])


@pytest.fixture(scope="module")
def oracle() -> Iterator[str]:
    """A PostgreSQL of its own, whose schema `public` has only these tables."""
    server = PostgresServer()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for _, statement in statements("tools_schema.sql"):
            connection.execute(statement.encode())
    yield server.dsn
    server.stop()


def answer(dsn: str, query: str) -> tuple[list[tuple[str, int]], list[tuple[Any, ...]]]:
    """The names and types of the columns, and the rows, sorted if the query does not sort them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        assert cursor.description is not None
        columns = [(column.name, TEXT_TYPES.get(column.type_code, column.type_code)) for column in cursor.description]
        rows = cursor.fetchall()
    return columns, rows if "ORDER BY" in query.rpartition(")")[2] else sorted(rows, key=repr)


@pytest.mark.parametrize(("tool", "query"), [*statements("tools.sql"), *statements("vectors.sql")])
def test_queries_of_tools_have_postgresql_s_answers(tidewire: ServerThread, oracle: str, tool: str, query: str) -> None:
    ours, theirs = answer(tidewire.dsn(), query), answer(oracle, query)
    assert ours == theirs, tool
    assert theirs[1], "the query finds something"


async def test_vectors_in_the_binary_format_and_as_parameters(tidewire: ServerThread, oracle: str) -> None:
    keys = "SELECT indkey, indclass, indkey[0], indkey::text FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass"
    columns = (
        "SELECT attname FROM pg_index i JOIN pg_attribute a ON attrelid = indrelid AND attnum = i.indkey[$1::int]"
        " WHERE i.indexrelid = 'pairs_pkey'::regclass"
    )
    found = []
    for dsn in (tidewire.dsn(), oracle):
        connection = await asyncpg.connect(dsn)
        try:
            rows = [tuple(row) for row in await connection.fetch(keys)]
            found.append((rows, [await connection.fetchval(columns, number) for number in (-1, 0, 1, 2)]))
        finally:
            await connection.close()
    assert found[0] == found[1]
    assert found[1][1] == [None, "part", "id", None]
