"""now() and statement_timestamp() in query strings, blocks and pipelines, compared with PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg
import pytest

from tests.fix_server import ServerThread

BOTH = "SELECT now(), statement_timestamp()"
STRINGS = {
    "one string": (f"{BOTH}; SELECT pg_sleep(0.002); {BOTH}",),
    "two strings": (BOTH, BOTH),
    "a string that ends a block": ("BEGIN", BOTH, f"{BOTH}; COMMIT; {BOTH}", BOTH),
    "a string with blocks": (f"BEGIN; {BOTH}; COMMIT; SELECT pg_sleep(0.002); BEGIN; {BOTH}", BOTH, "ROLLBACK"),
    "a definition in a string": (f"{BOTH}; CREATE TEMPORARY TABLE defined (a int); {BOTH}", "DROP TABLE defined"),
    "a block after a read": (f"{BOTH}; BEGIN; SELECT pg_sleep(0.002); {BOTH}", BOTH, "COMMIT"),
    "a chained block": ("BEGIN", BOTH, "COMMIT AND CHAIN", BOTH, BOTH, "ROLLBACK AND CHAIN", BOTH, "COMMIT"),
    "a failed block": ("BEGIN", BOTH, "SELECT 1/0", "ROLLBACK", BOTH),
    "a failed string": (f"{BOTH}; SELECT 1/0", BOTH),
    "system catalogs": (f"{BOTH}; {BOTH} FROM pg_class WHERE relname = 'pg_class'",),
    "a block of system catalogs": ("BEGIN", *[f"{BOTH} FROM pg_class WHERE relname = 'pg_class'"] * 2, "COMMIT"),
}


def numbered(times: Sequence[object]) -> list[int]:
    """The times as numbers, which are equal where the times are."""
    return [list(dict.fromkeys(times)).index(each) for each in times]


def times_of(dsn: str, strings: Sequence[str]) -> list[int]:
    found: list[object] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for string in strings:
            time.sleep(0.002)
            cursor = connection.cursor()
            try:
                cursor.execute(string.encode())
            except psycopg.errors.DivisionByZero:
                continue
            while True:
                if cursor.description is not None and len(cursor.description) == 2:
                    found += cursor.fetchone() or ()
                if not cursor.nextset():
                    break
    return numbered(found)


@pytest.mark.parametrize("name", STRINGS)
def test_query_strings(passing_server: ServerThread, postgres: str, name: str) -> None:
    assert times_of(passing_server.dsn(), STRINGS[name]) == times_of(postgres, STRINGS[name])


def test_rows_that_a_string_inserts_have_one_time(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE written (n int, at timestamptz DEFAULT now())")
        connection.execute(
            "INSERT INTO written (n) VALUES (1); SELECT pg_sleep(0.002); INSERT INTO written (n) VALUES (2)"
        )
        first, second = connection.execute("SELECT at FROM written").fetchall()
        assert first == second


def test_a_pipeline_is_one_transaction(passing_server: ServerThread, postgres: str) -> None:
    answers = []
    for dsn in (passing_server.dsn(), postgres):
        found: list[object] = []
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(2):
                with connection.pipeline():
                    cursors = [connection.execute("SELECT now(), %s::int", (n,)) for n in range(3)]
                    found += [cursor.fetchone()[0] for cursor in cursors]  # type: ignore[index]
                time.sleep(0.002)
        answers.append(numbered(found))
    assert answers[0] == answers[1] == [0, 0, 0, 1, 1, 1]


def test_the_names_of_settings_in_show(passing_server: ServerThread, postgres: str) -> None:
    names = []
    for dsn in (passing_server.dsn(), postgres):
        with psycopg.connect(dsn, autocommit=True) as connection:
            shown = ("timezone", "TIME ZONE", '"DATEstyle"', "intervalstyle", "server_version", "SEARCH_PATH")
            cursors = [connection.execute(f"SHOW {name}".encode()) for name in shown]
            names.append([cursor.description[0].name for cursor in cursors if cursor.description])
    assert names[0] == names[1]
