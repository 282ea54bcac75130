"""COPY in both directions with random options and rows, also of damaged data, compared with PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

Connection = psycopg.Connection[Any]

VALUES = {
    "i int NOT NULL DEFAULT 7": ("0", "1", "-2147483648"),
    "s text DEFAULT 'a,\"b'": (
        "",
        "a",
        "N",
        "NULL",
        "\\N",
        "\\.",
        'say "hi"',
        "it's",
        "a,b;c|d",
        "tab\there",
        "é\\",
        " x ",
    ),
    "m text": ("line\nend", "cr\rhere", "both\r\n", "\x01", "\\", '"', "'", "\\n", "0"),
    "n numeric(6,2) CHECK (n < 100)": ("1.50", "-0.01", "99.99", "3"),
    "d date": ("2020-02-29", "0044-03-15 BC", "infinity"),
    "b bool": ("true", "false"),
    "t timestamp DEFAULT '2001-02-03 04:05:06.7'": ("1999-12-31 23:59:59.999999", "-infinity"),
    "f float8": ("0.1", "-0", "NaN", "1e300"),
    "a int[]": ("{}", "{1,NULL,3}"),
    "x bytea": ("\\x", "\\x00ff5c", "\\x0a2c22"),
    "j jsonb": ('{"a": [1, "x\\ny"]}', "null"),
    "c char(3)": ("a", "ab,", ""),
    "v varchar(2)": ("é,", "N", ""),
}
DEFINITIONS = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True)


def name_of(definition: str) -> str:
    return definition.split()[0]


def rows_of(definitions: list[str]) -> st.SearchStrategy[list[tuple[str | None, ...]]]:
    """Rows whose values the columns take. The text of one value in six is NULL where the column takes it."""
    fields = []
    for definition in definitions:
        values = st.sampled_from(VALUES[definition])
        fields.append(values if "NOT NULL" in definition else st.one_of(*[values] * 5, st.none()))
    return st.lists(st.tuples(*fields), max_size=4)


def literal(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\x01", "\\x01") + "'"


def chosen(name: str, values: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    """An option in half of all cases."""
    return st.none() | st.sampled_from(values).map(lambda value: f"{name} {literal(value)}")


def columns_of(names: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(
        lambda some: f"({', '.join(some)})"
    )


def options_of(names: list[str], direction: str) -> st.SearchStrategy[str]:
    """The options of a COPY, of which few combinations are refused."""
    nulls = ("", "N", "NULL", "\\N", "0", "x y", "a")
    headers = ("true", "false", "match") if direction == "FROM" else ("true", "on")
    common = (
        st.none() | st.sampled_from(headers).map("HEADER {}".format),
        chosen("NULL", nulls),
        st.none() | st.none() | st.just("ENCODING 'UTF8'"),
        *([st.none() | chosen("DEFAULT", ("D", "\\D", "0", "a"))] if direction == "FROM" else ()),
    )
    forced = ("FORCE_NULL", "FORCE_NOT_NULL") if direction == "FROM" else ("FORCE_QUOTE",)
    every = st.just("*") if direction == "TO" else st.nothing()
    csv = (
        st.just("FORMAT csv"),
        chosen("DELIMITER", (",", ";", "|", "\t", " ", "a", "'", "\\")),
        chosen("QUOTE", ("'", '"', "|", "a", "\\")),
        chosen("ESCAPE", ("\\", '"', "'", "b")),
        *(st.none() | st.builds("{} {}".format, st.just(option), columns_of(names) | every) for option in forced),
        *common,
    )
    text = (st.none() | st.just("FORMAT text"), chosen("DELIMITER", (",", ";", "|", " ", "'", "\x01", "A")), *common)
    binary = (st.just("FORMAT binary"), st.none() | st.none() | st.sampled_from(("HEADER false", "NULL 'x'")))
    given = st.one_of(st.tuples(*csv), st.tuples(*csv), st.tuples(*text), st.tuples(*binary))
    return given.map(lambda options: f" WITH ({joined})" if (joined := ", ".join(filter(None, options))) else "")


def error_of(error: psycopg.Error) -> tuple[str | None, ...]:
    """What Tidewire also reports: not where and why JSON is invalid."""
    found = error.diag
    context = None if found.context is None else found.context.splitlines()[-1]
    detail = None if "json" in (found.message_primary or "") else found.message_detail
    return found.sqlstate, found.message_primary, detail, found.message_hint, context


def copied_out(connection: Connection, statement: str) -> object:
    """The messages of COPY TO: the first, with which a header begins, and the others in any order. Or the error."""
    try:
        with connection.cursor().copy(statement.encode()) as copy:
            first, *others = [bytes(data) for data in copy] or [b""]
    except psycopg.Error as error:
        return error_of(error)
    return [first, *sorted(others)] if "HEADER" in statement else sorted([first, *others])


def copied_in(connection: Connection, statement: str, data: list[bytes], table: str = "t") -> object:
    """The rows of the table after COPY FROM, or the error."""
    connection.execute(f"DELETE FROM {table}".encode())
    try:
        with connection.cursor().copy(statement.encode()) as copy:
            for chunk in data:
                copy.write(chunk)
    except psycopg.Error as error:
        return error_of(error)
    return copied_out(connection, f"COPY {table} TO STDOUT")


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "copies") as connection:
        connection.prepare_threshold = None
        yield connection


@pytest.fixture
def ours(passing_server: ServerThread) -> Iterator[Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True, prepare_threshold=None) as connection:
        yield connection


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[tuple[str | None, ...]], str]:
    definitions = draw(DEFINITIONS)
    names = [name_of(each) for each in definitions]
    listed = draw(st.just("") | columns_of(names))
    return definitions, draw(rows_of(definitions)), listed


def create(connection: Connection, definitions: list[str], rows: list[tuple[str | None, ...]]) -> None:
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t ({', '.join(definitions)})".encode())
    for row in rows:
        values = ("NULL" if value is None else literal(value) for value in row)
        connection.execute(f"INSERT INTO t VALUES ({', '.join(values)})".encode())


def named(listed: str, definitions: list[str]) -> list[str]:
    return listed.strip("()").split(", ") if listed else [name_of(each) for each in definitions]


@pytest.mark.slow
def test_random_rows_are_copied_out_as_by_postgresql(theirs: Connection, ours: Connection) -> None:
    @examples(100, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(histories(), st.data())
    def compare(history: tuple[list[str], list[tuple[str | None, ...]], str], data: st.DataObject) -> None:
        definitions, rows, listed = history
        for connection in (theirs, ours):
            create(connection, definitions, rows)
        for _ in range(4):
            statement = f"COPY t {listed} TO STDOUT{data.draw(options_of(named(listed, definitions), 'TO'))}"
            assert copied_out(ours, statement) == copied_out(theirs, statement), statement

    compare()


PARTS = (
    b"\n",
    b"\r\n",
    b"\t",
    b",",
    b'"',
    b"'",
    b"\\",
    b"\\.",
    b"\\.\n",
    b"\\N",
    b"a",
    b"0",
    b"\\x41",
    "é".encode(),
    b"D",
)


@st.composite
def damages(draw: st.DrawFn, data: bytes, parts: tuple[bytes, ...]) -> bytes:
    """Replaces up to three short ranges of the data."""
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2, 3)))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 2))
        data = data[:start] + draw(st.sampled_from(parts)) + data[end:]
    return data


@pytest.mark.slow
def test_random_data_is_copied_in_as_by_postgresql(theirs: Connection, ours: Connection) -> None:
    """The data is what PostgreSQL's COPY TO writes, mostly with the same options, and damaged."""

    @examples(150, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(histories(), st.data())
    def compare(history: tuple[list[str], list[tuple[str | None, ...]], str], data: st.DataObject) -> None:
        definitions, rows, listed = history
        for connection in (theirs, ours):
            create(connection, definitions, rows)
        names = named(listed, definitions)
        options = data.draw(options_of(names, "FROM"))
        is_binary = "FORMAT binary" in options
        taken = [each for each in options.removeprefix(" WITH (").removesuffix(")").split(", ") if is_written(each)]
        written = copied_out(theirs, f"COPY t {listed} TO STDOUT{f' WITH ({chr(44).join(taken)})' if taken else ''}")
        if not isinstance(written, list):
            return
        theirs.execute("DELETE FROM t")
        parts = (b"\0", b"\xff", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\xff\xff") if is_binary else PARTS
        whole = data.draw(damages(b"".join(written), parts))
        try:
            whole.decode()
        except UnicodeDecodeError:
            if not is_binary:
                return  # PostgreSQL checks the encoding some distance ahead of the rows that it reads
        cut = data.draw(st.integers(0, len(whole)))
        statement = f"COPY t {listed} FROM STDIN{options}"
        chunks = [whole[:cut], whole[cut:]]
        assert copied_in(ours, statement, chunks) == copied_in(theirs, statement, chunks), (statement, whole)

    compare()


DEFAULTS: tuple[tuple[str, bytes], ...] = (
    ("COPY d (id, b, c) FROM STDIN (DEFAULT 'D')", b"D\tD\tx\n7\t1\tD\nD\t2\t\\N\n"),
    ("COPY d (id, b, c) FROM STDIN (DEFAULT 'D', FORMAT csv)", b'D,"3","D"\n8,D,D\n'),
    ("COPY d (b, c) FROM STDIN (DEFAULT '', FORMAT csv, NULL 'N')", b',\n,N\n1,""\n'),
    ("COPY d (id) FROM STDIN", b"20\n21\n"),
    ("COPY d (c) FROM STDIN (DEFAULT '\\D')", b"\\D\na\\D\n\\\\D\n"),
    ("COPY d (c, n) FROM STDIN (DEFAULT 'D')", b"x\t1\nx\tD\n"),
    ("COPY d (b) FROM STDIN (DEFAULT 'D', FORMAT csv, FORCE_NOT_NULL (b))", b"1\nD\n\n"),
    ("COPY d (b) FROM STDIN (DEFAULT 'D', HEADER match)", b"D\nD\n"),
    ("COPY d (b) FROM STDIN (HEADER match)", b"b\tx\ty\tz\n1\n"),
    ("COPY d (b) FROM STDIN (HEADER match, FORMAT csv)", b"b,x,y,z\n1\n"),
    ("COPY d (b) FROM STDIN (DEFAULT 'D')", b"D\nD\tD\n"),
    ("COPY d (e, id) FROM STDIN (DEFAULT 'D')", b"D\t100\n{3}\t101\n"),
    ("COPY d (e) FROM STDIN", b"{},\n"),
)


def test_markers_of_defaults(theirs: Connection, ours: Connection) -> None:
    """Each marker takes a value of a sequence, and a copied column takes none. The last statements fail."""
    for connection in (theirs, ours):
        connection.execute(
            "DROP TABLE IF EXISTS d; CREATE TABLE d (id int GENERATED BY DEFAULT AS IDENTITY, b int DEFAULT 5, "
            "c text DEFAULT 'it', n int, e int[] DEFAULT '{1,2}')"
        )
    for statement, data in DEFAULTS:
        assert copied_in(ours, statement, [data], "d") == copied_in(theirs, statement, [data], "d"), statement


def is_written(option: str) -> bool:
    return option.startswith(("FORMAT", "DELIMITER", "NULL", "QUOTE", "ESCAPE")) or option == "HEADER true"
