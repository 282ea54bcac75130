"""JSON paths of hostile clients: their cost, and the errors of what is nested too deeply."""

from __future__ import annotations

from time import monotonic

import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.sql.functions.table import FUNCTIONS
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
