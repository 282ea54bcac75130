"""CONTEXT of errors of COPY FROM, compared with PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, name text UNIQUE, CHECK (n > 0))"
CASES = [
    ("(FORMAT text)", "1\t1\ta\n2\t1\tb\n1\t1\tc\n"),
    ("(FORMAT text)", "1\t1\ta\n2\t1\tb\n3\t1\ta\n4\t1\ta\n"),
    ("(FORMAT text)", "1\t1\ta\n2\t\\N\tb\n"),
    ("(FORMAT text)", "1\t1\ta\n\\N\t1\tb\n3\t-1\tc\n"),
    ("(FORMAT text)", "1\t1\ta\n2\t-1\tb\n3\t\\N\tc\n"),
    ("(FORMAT text)", "1\t1\ta\\tb\n2\t-1\tlong " + "x" * 200 + "\n"),
    ("(FORMAT text)", "1\t1\ta\n2\t-1\tä\\tb\\\\c\\n" + "é" * 50 + "\n"),
    ("(FORMAT text)", "1\t1\ta\r\n2\t1\tb\r\n2\t1\tc\r\n"),
    ("(FORMAT text)", "1\t1\ta\r\n2\t-2\tb\r\n"),
    ("(FORMAT text, HEADER)", "id\tn\tname\n1\t1\ta\n1\t1\tb\n"),
    ("(FORMAT csv)", '1,1,"a"\n2,1,"two\nlines"\n3,1,"a"\n'),
    ("(FORMAT csv)", '1,1,"a"\n2,1,"two\nlines"\n3,1,"three\n\nlines"\n4,-1,"d"\n'),
    ("(FORMAT csv)", "1,1,a\n2,1,b\\.\n1,1,c"),
    ("(FORMAT csv, HEADER)", "id,n,name\n1,1,a\n2,,b\n"),
    ("(FORMAT csv)", "1,1,a\n2,x,b\n"),
    ("(FORMAT csv)", "1,1,a\n2,1\n"),
    ("(FORMAT text)", "".join(f"{n}\t1\tname {n}\n" for n in range(5000)) + "70\t1\tagain\n"),
]


def fault(connection: psycopg.Connection[Any], options: str, data: str) -> Any:
    connection.execute("TRUNCATE t")
    try:
        with connection.cursor().copy(f"COPY t FROM STDIN {options}".encode()) as copy:
            copy.write(data)
    except psycopg.Error as error:
        diagnostics = error.diag
        return error.sqlstate, diagnostics.message_primary, diagnostics.message_detail, diagnostics.context
    return None


def test_the_line_of_a_faulty_row_is_postgresqls(postgres: str, dsn: str) -> None:
    with own_schema(postgres, "copies") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        for connection in (theirs, ours):
            connection.execute(TABLE)
        for options, data in CASES:
            expected = fault(theirs, options, data)
            assert expected is not None
            assert (data[:60], fault(ours, options, data)) == (data[:60], expected)


@pytest.mark.parametrize("options", ["(FORMAT text)", "(FORMAT binary)"])
def test_large_data(passing_server: ServerThread, options: str) -> None:
    """The line is right if rows have gone to payload files, and in binary data, which has no lines."""
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
        with pytest.raises(psycopg.errors.UniqueViolation) as raised:
            with connection.cursor().copy(f"COPY t FROM STDIN WITH {options}".encode()) as copy:
                if "binary" in options:
                    copy.set_types(["int8", "text"])
                for number in range(60_000):
                    copy.write_row((number if number != 55_554 else 3, "x" * 150))
        assert raised.value.diag.context == "COPY t, line 55555"
