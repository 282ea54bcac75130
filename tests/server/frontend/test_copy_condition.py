"""COPY FROM ... WHERE, compared with PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import Connect

TABLE = """CREATE TABLE t (a int, b text NOT NULL, c int DEFAULT 7, d int GENERATED ALWAYS AS (a * 2) STORED,
    PRIMARY KEY (a), CHECK (a < 90000))"""


def copied(connection: psycopg.Connection[Any], statement: str, data: str) -> tuple[str | None, ...]:
    """The tag of COPY, or its error."""
    try:
        cursor = connection.cursor()
        with cursor.copy(statement.encode()) as copy:
            copy.write(data)
    except psycopg.Error as error:
        diag = error.diag
        return diag.sqlstate, diag.message_primary, diag.message_detail, diag.context, diag.statement_position
    return (cursor.statusmessage,)


CASES = [
    ("COPY t (a, b) FROM STDIN WHERE a > 1", "1\tx\n2\ty\n3\tz\n"),
    ("COPY t (a, b) FROM STDIN (FORMAT csv) WHERE a > 10 AND b <> 'c' OR b IS NULL", "11,a\n12,b\n13,c\n4,d\n"),
    ("COPY t (a, b) FROM STDIN (FORMAT csv) WHERE b <> ''", "21,\n22,\n"),
    ("COPY t (a, b) FROM STDIN CSV WHERE c = 7 AND length(repeat(b, 2)) = 2", "31,x\n32,xx\n"),
    ("COPY t (a, b) FROM STDIN WHERE b LIKE '%y' AND now() > '2020-01-01'", "41\txy\n42\tx\n43\ty\n"),
    ("COPY t (a, b) FROM STDIN WHERE NULL", "51\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE a % 2 = 0", "60\tx\n61\t\\N\n62\t\\N\n"),
    ("COPY t (a, b) FROM STDIN WHERE a % 2 = 0", "70\tx\n90001\tx\n72\tx\n90002\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE a % 2 = 0", "80\tx\n81\tx\n83\tx\n80\ty\n"),
    ("COPY t (a, b) FROM STDIN WHERE a / 0 = 1", "99\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE a", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE nope > 1", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE d > 1", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE a > (SELECT 1)", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE max(a) > 1", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE a > 1 FORMAT csv", "1\tx\n"),
    ("COPY t (a, b) FROM STDIN WHERE", "1\tx\n"),
    ("COPY t TO STDOUT WHERE a > 1", ""),
]


def test_rows_that_do_not_meet_the_condition_are_omitted(postgres: str, connect: Connect) -> None:
    with own_schema(postgres, "copy_condition") as theirs:
        ours = connect()
        for connection in (theirs, ours):
            connection.execute(TABLE)
        for statement, data in CASES:
            found, expected = (copied(connection, statement, data) for connection in (ours, theirs))
            # An error of the condition has no CONTEXT, and the position of a subquery is that of its first item.
            fields = {"22012": 3, "0A000": 4}.get(expected[0] or "")
            assert found[:fields] == expected[:fields], statement
            query = "SELECT * FROM t ORDER BY a"
            assert ours.execute(query).fetchall() == theirs.execute(query).fetchall(), statement


@pytest.mark.parametrize("last", ["", "88888\t\\N\n"])
def test_a_large_copy(connect: Connect, last: str) -> None:
    connection = connect()
    connection.execute(TABLE)
    data = "".join(f"{number}\t{number}\n" for number in range(50_000)) + last
    found = copied(connection, "COPY t (a, b) FROM STDIN WHERE a % 10 = 3 OR a = 88888", data)
    if last:
        assert found[:2] == ("23502", 'null value in column "b" of relation "t" violates not-null constraint')
        assert found[3] == 'COPY t, line 50001: "88888\t\\N"'
    else:
        assert found == ("COPY 5000",)
        assert connection.execute("SELECT count(*), min(a), max(d) FROM t").fetchall() == [(5000, 3, 99986)]
