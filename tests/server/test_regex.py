"""What a regular expression matches is what PostgreSQL says: its answers, from a real server."""

from __future__ import annotations

import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex import TEXT_MAX, Regex


def spans(pattern: str, text: str) -> list[str | None] | None:
    match = Regex(pattern, "").find(text)
    return None if match is None else [text[slice(*span)] if span is not None else None for span in match.spans]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab|abc", "xabcy", ["abc"]),  # the longest, not the first alternative
        ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd", "ab", "c", "d"]),
        ("Y*?([0-9]{1,3})", "XY1234Z", ["Y1", "1"]),  # the first quantifier decides for the whole
        ("(a*)+", "a", ["a", ""]),  # x+ is x*x, and only the last x has groups
        ("(a*)*", "", ["", ""]),
        ("((a)|b|c)*", "abac", ["abac", "c", None]),
        ("(a+?)(a*b)", "aaab", ["aaab", "a", "aab"]),
        ("b(?=c)", "abc", ["b"]),
        ("x", "abc", None),
    ],
)
def test_the_match_and_its_groups(pattern: str, text: str, expected: list[str | None] | None) -> None:
    assert spans(pattern, text) == expected


@pytest.mark.parametrize("pattern", ["(", ")", "[", "*", "a**", "a{2,1}", "a{256}", "[b-a]", "[[:no:]]", "\\", "\\q"])
def test_what_postgresql_refuses(pattern: str) -> None:
    with pytest.raises(PgError) as caught:
        Regex(pattern, "")
    assert caught.value.sqlstate == SqlState.INVALID_REGULAR_EXPRESSION


def test_limits_of_searches() -> None:
    with pytest.raises(PgError) as caught:
        Regex("(.)\\1", "").find("aa")
    assert caught.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED
    with pytest.raises(PgError) as caught:
        Regex("a+", "").find("a" * (TEXT_MAX + 1))
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED
    assert Regex("(.)\\1", "").test("xaa")
