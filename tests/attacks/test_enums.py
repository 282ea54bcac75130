"""Enumerated types with thousands of labels. Each column of such a type stores its labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from server.execution.user_types import TYPE_CHARS_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess

pytestmark = pytest.mark.attacks

PAUSE_MAX_S = 0.25
LABELS = 1_500
LABEL_CHARS = 50
FITTING = TYPE_CHARS_MAX // (LABELS * (LABEL_CHARS + 30))  # as many columns fit into a relation


@pytest.fixture
def connection(own_server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        labels = ", ".join(f"'{number:0{LABEL_CHARS}}'" for number in range(LABELS))
        connection.execute(f"CREATE SCHEMA enums; SET search_path = enums; CREATE TYPE e AS ENUM ({labels})".encode())
        yield connection
        connection.execute("DROP SCHEMA enums CASCADE")


def create_table(connection: psycopg.Connection[Any], name: str, columns: int, type: str = "e") -> None:
    connection.execute(f"CREATE TABLE {name} ({', '.join(f'c{n} {type}' for n in range(columns))})".encode())


def test_labels_of_columns_are_limited(own_server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    refused = pytest.raises(errors.ProgramLimitExceeded, match="have too many labels")
    with watched(own_server, PAUSE_MAX_S):
        for type in ("e", "e[]"):
            with refused:
                create_table(connection, "t", 200, type)
        create_table(connection, "t", FITTING)
        with refused:
            for number in range(FITTING):
                connection.execute(f"ALTER TABLE t ADD COLUMN added{number} e".encode())
        with refused:
            connection.execute("CREATE VIEW v AS SELECT a.*, b.c0 AS d0, b.c1 AS d1, b.c2 AS d2 FROM t a, t b")
        connection.execute("ALTER TABLE t DROP COLUMN added0")
        connection.execute("CREATE TYPE small AS ENUM ('a', 'b'); CREATE TABLE s (a small)")
        create_table(connection, "many", 1_500, "small")


def test_relations_share_long_types(own_server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    before = resident_bytes(own_server.process.pid)
    with watched(own_server, PAUSE_MAX_S):
        for number in range(60):
            create_table(connection, f"t{number}", FITTING)
        connection.execute("ALTER TYPE e ADD VALUE 'added'")
        connection.execute("ALTER TYPE e RENAME VALUE 'added' TO 'renamed'")
    assert resident_bytes(own_server.process.pid) - before < 40 << 20
    connection.execute("INSERT INTO t59 (c0) VALUES ('renamed')")
    assert connection.execute("SELECT c0 FROM t59").fetchone() == ("renamed",)
