"""COPY's options are accepted and refused as by PostgreSQL, with its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from protocol.pgwire.copy_options import CopyFormat, CopyOptions, Header, OptionValue
from protocol.pgwire.errors import PgError

CASES: list[tuple[bool, list[tuple[str, OptionValue]]]] = [
    (False, [("format", "xml")]),
    (False, [("format", "CSV")]),
    (False, [("delimiter", "ab")]),
    (False, [("delimiter", "é")]),
    (False, [("delimiter", "")]),
    (False, [("delimiter", "\n")]),
    (False, [("delimiter", "a")]),
    (False, [("delimiter", 1)]),
    (False, [("delimiter", None)]),
    (False, [("null", "a\n")]),
    (False, [("null", None)]),
    (False, [("null", "a|b"), ("delimiter", "|")]),
    (False, [("format", "csv"), ("null", 'a"b')]),
    (False, [("format", "binary"), ("header", None)]),
    (False, [("format", "binary"), ("header", False)]),
    (False, [("format", "binary"), ("delimiter", ",")]),
    (False, [("format", "binary"), ("null", ",")]),
    (False, [("quote", "x")]),
    (False, [("format", "csv"), ("quote", "xx")]),
    (False, [("format", "csv"), ("quote", ",")]),
    (False, [("escape", "x")]),
    (False, [("format", "csv"), ("escape", "")]),
    (False, [("force_quote", ["a"])]),
    (True, [("format", "csv"), ("force_quote", ["a"])]),
    (False, [("format", "csv"), ("force_quote", "a")]),
    (False, [("format", "csv"), ("force_quote", None)]),
    (False, [("format", "csv"), ("force_quote", "*")]),
    (False, [("force_null", ["a"])]),
    (False, [("format", "csv"), ("force_null", ["a"])]),
    (False, [("format", "csv"), ("force_not_null", ["a"])]),
    (True, [("format", "csv"), ("force_not_null", "*")]),
    (True, [("format", "csv"), ("force_not_null", ["a", "b"])]),
    (False, [("header", "match")]),
    (False, [("header", "xx")]),
    (False, [("header", 3)]),
    (False, [("header", "on")]),
    (False, [("foo", 1)]),
    (False, [("format", "csv"), ("format", "csv")]),
    (False, [("format", "csv"), ("header", "match"), ("quote", "")]),
    (False, [("encoding", "xx")]),
    (False, [("encoding", "UTF8")]),
    (False, [("freeze", "x")]),
    (False, [("default", "D")]),
    (True, [("default", "D")]),
    (True, [("default", None)]),
    (True, [("default", "a\r")]),
    (True, [("default", "a|b"), ("delimiter", "|")]),
    (True, [("default", "\\N")]),
    (True, [("default", ""), ("format", "csv")]),
    (True, [("default", 'a"'), ("format", "csv")]),
    (True, [("default", "D"), ("format", "binary")]),
    (True, [("default", "D"), ("null", "\n"), ("format", "csv"), ("quote", "D")]),
]


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("create temp table t(a int, b text)")
        yield connection


def spelled(name: str, value: OptionValue) -> str:
    if value is None or value == "*":
        return f"{name} {value or ''}"
    if isinstance(value, list):
        return f"{name} ({', '.join(value)})"
    return f"{name} E{value!r}" if isinstance(value, str) else f"{name} {str(value).lower()}"


@pytest.mark.parametrize(("reading", "pairs"), CASES)
def test_options_are_accepted_and_refused_as_by_postgresql(
    server: psycopg.Connection[Any], reading: bool, pairs: list[tuple[str, OptionValue]]
) -> None:
    expected = got = None
    options = ", ".join(spelled(name, value) for name, value in pairs)
    try:
        with server.cursor().copy(f"copy t {'from stdin' if reading else 'to stdout'} with ({options})") as copy:
            assert reading or list(copy) is not None
    except psycopg.Error as error:
        expected = error.sqlstate, error.diag.message_primary
    try:
        CopyOptions.of(pairs, reading=reading)
    except PgError as error:
        got = str(error.sqlstate), error.message
    assert got == expected


def test_defaults_depend_on_the_format() -> None:
    csv = CopyOptions.of([("format", "csv"), ("quote", "'")], reading=True)
    assert csv == CopyOptions(CopyFormat.CSV, ",", "", Header.NONE, "'", "'")
    assert csv == CopyOptions.csv(quote="'")
    assert CopyOptions.of([], reading=False) == CopyOptions()
    assert CopyOptions.of([("format", "binary")], reading=False) == CopyOptions.binary()


def test_a_column_may_occur_once_in_a_list() -> None:
    options = CopyOptions.csv()
    assert options.positions(["b"], ["a", "b"]) == {1}
    assert options.positions(["*"], ["a", "b"]) == {0, 1}
    with pytest.raises(PgError, match='column "z" of relation "t" does not exist'):
        options.positions(["z"], ["a"], "t")
    with pytest.raises(PgError, match='column "a" specified more than once'):
        options.positions(["a", "a"], ["a"])
