"""JSON paths of hostile clients: their cost, and the errors of what is nested too deeply."""

from __future__ import annotations

from time import monotonic

import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.sql.functions.table import FUNCTIONS
from server.sql.json_path.evaluation import Evaluation
from server.sql.json_path.parser import parsed


@pytest.mark.parametrize(
    "path",
    [
        "$ " + "/* " * 300_000,
        "$" + ".a /* */" * 20_000 + "/* " * 100_000,
        '$."' + "a" * 500_000,
        '$."' + "\\" * 500_001,
        "$" + "." * 500_000,
        "$" + ".a" * 50_000 + " ?",
    ],
)
def test_a_long_path_with_an_error_is_refused_in_linear_time(path: str) -> None:
    begun = monotonic()
    with pytest.raises(PgError) as raised:
        parsed(path)
    assert raised.value.sqlstate == SqlState.SYNTAX_ERROR
    assert monotonic() - begun < 5


@pytest.mark.parametrize("path", ["(" * 100_000, "!(" * 50_000, "-" * 100_000 + "1", "$[" * 100_000])
def test_a_path_that_is_nested_too_deeply_is_refused(path: str) -> None:
    with pytest.raises(PgError) as raised:
        parsed(path)
    assert raised.value.sqlstate == SqlState.STATEMENT_TOO_COMPLEX


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    query = next(row for row in FUNCTIONS["jsonb_path_query_array"] if len(row.arguments) == 2).python
    assert query is not None
    deep = "[" * 700 + "]" * 700
    with pytest.raises(PgError) as raised:
        query(deep, "$.**")
    assert raised.value.sqlstate == SqlState.STATEMENT_TOO_COMPLEX


def test_integers_in_other_bases_are_exact() -> None:
    for text in ("0x" + "7f_" * 20_000 + "e", "0o" + "12345670" * 5_000, "0b" + "01_1" * 10_000):
        (number,) = Evaluation(parsed(text), None, {}, None).items()
        assert number == int(text, 0)


@pytest.mark.parametrize("level", ["99999999999", "9" * 5_000, "0xfffffffff"])
def test_a_level_that_is_no_integer_of_32_bits_is_refused(level: str) -> None:
    """As by PostgreSQL 16."""
    with pytest.raises(PgError) as raised:
        parsed(f"$.**{{{level}}}")
    assert raised.value.sqlstate == SqlState.NUMERIC_VALUE_OUT_OF_RANGE
    assert parsed("$.**{1_0 to 0x0b}") == parsed("$.**{10 to 11}")
