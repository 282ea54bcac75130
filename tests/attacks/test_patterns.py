"""Texts for which a pattern of the server's own parsers could take quadratic time or more.

A match holds Python's global lock: even in another thread, it would stop all sessions.
"""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
import pytest

from tests.attacks.clients import watched
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
    "pg_size_bytes": f"SELECT pg_size_bytes('1 a{SPACES}b')",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_text_for_a_pattern_delays_no_other_session(own_server: ServerProcess, statement: str) -> None:
    with watched(own_server, PAUSE_MAX_S), psycopg.connect(own_server.dsn, autocommit=True) as connection:
        begun = time.monotonic()
        with suppress(psycopg.errors.DataError, psycopg.errors.ProgrammingError):
            connection.execute(statement.encode())
        assert time.monotonic() - begun < ENDS_WITHIN_S


PARAMETERS = {
    "float8": f"{DIGITS}x",
    "numeric": f"{DIGITS}x",
    "interval": f"P{DIGITS}x",
    "text[]": f"{{\\a{SPACES}b}}",
}


@pytest.mark.parametrize("type", PARAMETERS)
def test_a_long_parameter_for_a_pattern_delays_no_other_session(own_server: ServerProcess, type: str) -> None:
    with watched(own_server, PAUSE_MAX_S), psycopg.connect(own_server.dsn, autocommit=True) as connection:
        with suppress(psycopg.errors.DataError):
            connection.execute(f"SELECT %s::{type}".encode(), [PARAMETERS[type]])
