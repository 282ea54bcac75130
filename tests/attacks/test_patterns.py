"""Texts for which a pattern of the server's own parsers could take quadratic time, or much memory.

A match holds Python's global lock: even in another thread, it would stop all sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pyarrow as pa
import pytest

from protocol.pgwire.binary_columns import varying_column
from protocol.pgwire.errors import PgError
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import BYTEA, INT8, TEXT, returned_type, row_type
from server.sql.grammar.lexer import tokenize
from server.sql.grammar.literal_rows import split_few
from server.sql.json_path.parser import parsed
from tests.attacks.clients import traced, watched
from tests.fix_server import ServerProcess

pytestmark = pytest.mark.attacks

PAUSE_MAX_S = 0.4
ENDS_WITHIN_S = 5.0

DIGITS, SPACES = "1" * 7_000, " " * 7_000
STATEMENTS = {
    "float8": f"SELECT '{DIGITS}x'::float8",
    "float4": f"SELECT '0x{DIGITS}x'::float4",
    "numeric": f"SELECT '{DIGITS}x'::numeric",
    "an element of an array": f"SELECT '{{\\a{SPACES}b}}'::text[]",
    "a name of a type": f'SELECT 1::"int{" " * 150}!"',
    "a name of a type as text": f"SELECT to_regtype('int{' ' * 150}!')",
    "a type of a column": f'CREATE TABLE t (a "int{" " * 150}!")',
    "a setting": f"SET statement_timeout = '1{SPACES}!'",
    "a function's setting": f"SELECT set_config('statement_timeout', '1{SPACES}!', false)",
    "a number of a JSON path": f"SELECT '{{}}'::jsonb @? '0x{'f' * 1_000_000}'",
    "the greatest number of a JSON path": f"SELECT '{{}}'::jsonb @? '0x{'f' * 108_852}'",
    "pg_size_bytes": f"SELECT pg_size_bytes('1 a{SPACES}b')",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_text_for_a_pattern_delays_no_other_session(own_server: ServerProcess, statement: str) -> None:
    with watched(own_server, PAUSE_MAX_S), psycopg.connect(own_server.dsn, autocommit=True) as connection:
        begun = time.monotonic()
        with suppress(psycopg.errors.DataError, psycopg.errors.ProgrammingError):
            connection.execute(statement.encode())
        assert time.monotonic() - begun < ENDS_WITHIN_S


LONG_CHARS = 16_000_000
PARAMETERS = {
    "float8": ("float8", f"{DIGITS}x"),
    "numeric": ("numeric", f"{DIGITS}x"),
    "interval": ("interval", f"P{DIGITS}x"),
    "an element of an array": ("text[]", f"{{\\a{SPACES}b}}"),
    "braces": ("text[]", "{" * LONG_CHARS),
    "bounds": ("text[]", "[1:1]" * (LONG_CHARS // 5)),
    "escapes in quotes": ("text[]", '{"' + '\\"' * (LONG_CHARS // 2)),
    "escapes without quotes": ("text[]", "{" + "\\a" * (LONG_CHARS // 2) + "}}"),
    "hexadecimal digits": ("bytea", "\\x" + "aa" * (LONG_CHARS // 2) + "g"),
}


@pytest.mark.parametrize(("type", "text"), PARAMETERS.values(), ids=PARAMETERS)
def test_a_long_parameter_for_a_pattern_delays_no_other_session(
    own_server: ServerProcess, type: str, text: str
) -> None:
    with watched(own_server, PAUSE_MAX_S), psycopg.connect(own_server.dsn, autocommit=True) as connection:
        with suppress(psycopg.errors.DataError, psycopg.errors.ProgramLimitExceeded):
            connection.execute(f"SELECT %s::{type}".encode(), [text])


REPEATED = 100_000
BYTES_MAX = 60 * REPEATED  # a match that can go back keeps more than 110 bytes for each repetition of a group


def sent_row(text: str) -> object:
    """A row of one text in binary format."""
    return varying_column(returned_type(row_type(("a",), (TEXT,))))(pa.array([text]))


LONG: dict[str, tuple[Callable[[str], object], str]] = {
    "quotes": (tokenize, "'" + "''" * REPEATED + "'"),
    "quotes without an end": (tokenize, "'" + "''" * REPEATED),
    "quotes of a name": (tokenize, '"' + '""' * REPEATED + '"'),
    "escapes": (tokenize, "E'" + "\\n" * REPEATED + "'"),
    "quotes of an escape string": (tokenize, "E'" + "''" * REPEATED + "'"),
    "quotes of a Unicode string": (tokenize, "U&'" + "''" * REPEATED + "'"),
    "parts of a string": (tokenize, "'a'\n" * REPEATED),
    "spaces after a string": (tokenize, "'a'\n" + " " * REPEATED),
    "comments after a string": (tokenize, "'a'\n" + "--\n" * REPEATED),
    "comments after a Unicode string": (tokenize, "U&'a'" + "--\n" * REPEATED),
    "comments": (tokenize, "--\n" * REPEATED),
    "digits": (tokenize, "9" * REPEATED),
    "binary digits": (tokenize, "0b" + "1" * REPEATED),
    "underscores": (tokenize, "1" + "_1" * REPEATED),
    "values of a row": (split_few, "INSERT INTO t VALUES (1" + ",1" * REPEATED + ")"),
    "characters of a field of a row": (sent_row, '("' + "a," * REPEATED + '")'),
    "digits of an integer": (lambda text: parse_text(INT8, text), "9" * REPEATED),
    "escapes of bytes": (lambda text: parse_text(BYTEA, text), "\\\\" * REPEATED),
    "underscores of an integer": (lambda text: parse_text(INT8, text), "0x" + "_f" * REPEATED),
    "digits in a JSON path": (parsed, "9" * 2 * REPEATED),
    "characters of a name in a JSON path": (parsed, "$." + "a" * REPEATED),
    "escapes of a name in a JSON path": (parsed, "$." + "\\n" * REPEATED),
    "escapes of a string in a JSON path": (parsed, '$."' + "\\n" * REPEATED + '"'),
    "comments in a JSON path": (parsed, "$" + "/**/" * REPEATED),
}


@pytest.mark.parametrize(("parse", "text"), LONG.values(), ids=LONG)
def test_a_match_takes_no_memory_for_each_repetition(parse: Callable[[str], object], text: str) -> None:
    """A statement of 64 MiB would take gigabytes otherwise, and seconds in which no other session is served."""

    def act() -> None:
        with suppress(PgError):
            parse(text)

    most = traced(act)
    assert most < BYTES_MAX, f"{most / REPEATED:.0f} bytes for each"
