"""Regular expressions match as in PostgreSQL. The expected matches were produced by a PostgreSQL server."""

from __future__ import annotations

import re

import pytest
import re2
import regex
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex import patterns
from server.sql.regex.determinism import is_deterministic
from server.sql.regex.regex import Regex


def spans(pattern: str, text: str) -> list[str | None] | None:
    match = Regex(pattern, "").find(text)
    return None if match is None else [text[slice(*span)] if span is not None else None for span in match.spans]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab|abc", "xabcy", ["abc"]),  # the longest match, not the first alternative
        ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd", "ab", "c", "d"]),
        ("Y*?([0-9]{1,3})", "XY1234Z", ["Y1", "1"]),  # the first quantifier decides whether the whole match is shortest
        ("(a*)+", "a", ["a", ""]),  # x+ is x*x, and only the last x has groups
        ("(a*)*", "", ["", ""]),
        ("((a)|b|c)*", "abac", ["abac", "c", None]),
        ("(a+?)(a*b)", "aaab", ["aaab", "a", "aab"]),
        ("b(?=c)", "abc", ["b"]),
        ("x", "abc", None),
    ],
)
def test_matches_and_groups_equal_those_of_postgresql(
    pattern: str, text: str, expected: list[str | None] | None
) -> None:
    assert spans(pattern, text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "postgres", "others"),
    [
        ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd", "ab", "c", "d"], ["abcd", "a", "bcd", ""]),
        ("((a)|b|c)*", "abac", ["abac", "c", None], ["abac", "c", "a"]),
        ("Y*?([0-9]{1,3})", "XY1234Z", ["Y1", "1"], ["Y123", "123"]),
    ],
)
def test_no_library_has_postgresqls_groups_and_shortest_matches(
    pattern: str, text: str, postgres: list[str | None], others: list[str | None]
) -> None:
    assert spans(pattern, text) == postgres
    options = re2.Options()
    options.longest_match = True
    for match in (regex.search(pattern, text, regex.POSIX), re2.compile(pattern, options).search(text)):
        assert [match[group] for group in range(len(others))] == others


def test_the_posix_mode_of_regex_tries_exponentially_many_matches() -> None:
    pattern, text = "(?=a)(?:a|aa)+", "a" * 100
    assert Regex(pattern, "").linear is None
    with pytest.raises(TimeoutError):
        regex.search(pattern, text, regex.POSIX, timeout=0.1)
    assert spans(pattern, text) == [text]


@pytest.mark.parametrize("pattern", ["(", ")", "[", "*", "a**", "a{2,1}", "a{256}", "[b-a]", "[[:no:]]", "\\", "\\q"])
def test_patterns_that_postgresql_refuses(pattern: str) -> None:
    with pytest.raises(PgError) as caught:
        Regex(pattern, "")
    assert caught.value.sqlstate == SqlState.INVALID_REGULAR_EXPRESSION


def test_back_references_are_refused_if_the_match_is_needed() -> None:
    with pytest.raises(PgError) as caught:
        Regex("(.)\\1", "").find("aa")
    assert caught.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED
    assert Regex("(.)\\1", "").test("xaa")


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a*)*b", "(a|aa)+$", "(a|a)*b", "a.*a.*a.*a.*b", "^(([a-z])+.)+[A-Z]$", "((a*)*)*c"]
)
def test_a_pattern_with_nested_quantifiers_is_matched_in_linear_time(pattern: str) -> None:
    compiled = Regex(pattern, "")
    assert compiled.linear is not None
    assert compiled.java is None
    assert not compiled.test("a" * 50_000 + "!")


def test_backtracking_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.sql.regex.regex.SEARCH_S_MAX", 0.1)
    compiled = Regex("(?=a)(a|aa)+$", "")
    assert compiled.linear is None
    with pytest.raises(PgError) as caught:
        compiled.test("a" * 100 + "!")
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED


def test_assigning_a_match_to_groups_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.sql.regex.matcher.POSITIONS_MAX", 10_000)
    with pytest.raises(PgError) as caught:
        Regex("((a|aa)*(a|aaa)*)*b", "").find("a" * 5_000 + "b")
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED


def test_patterns_with_excessive_repetition_are_refused() -> None:
    with pytest.raises(PgError) as caught:
        Regex("((a{255}){255}){255}", "")
    assert caught.value.sqlstate == SqlState.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern", ["^abc", "abc$", "a|b|c", "^[0-9]+$", "^a.*b", "x{2,5}y", "(foo|bar)baz", "^(a|b)c*$", "ab.*"]
)
def test_patterns_without_long_backtracking_are_evaluated_by_spark(pattern: str) -> None:
    assert Regex(pattern, "").java is not None


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "expected"),
    [
        ("k", "i", "K", True),
        ("k", "i", "\u212a", False),  # the Kelvin sign: in the locale C, only ASCII letters have case
        ("s", "i", "\u017f", False),
        ("é", "i", "É", False),
        ("^b$", "n", "a\nb\nc", True),
        ("^b$", "", "a\nb\nc", False),
        ("a$", "", "a\n", False),
        ("\\yfoo\\y", "", "a foo b", True),
        ("\\mfoo\\M", "", "afoo", False),
        ("[^a]", "n", "\n", False),
        ("a.c", "", "a\nc", True),
    ],
)
def test_both_libraries_match_as_postgresql(pattern: str, flags: str, text: str, expected: bool) -> None:
    compiled = Regex(pattern, flags)
    assert compiled.test(text) is expected
    assert (compiled.backtracking.search(text) is not None) is expected


def test_positions_of_matches_are_in_characters() -> None:
    assert [m.spans for m in Regex("(a)|$", "").find_all("éaüa")] == [
        ((1, 2), (1, 2)),
        ((3, 4), (3, 4)),
        ((4, 4), None),
    ]


_PARTS = st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "é", ".", "*"])


@given(st.lists(_PARTS, max_size=8).map("".join), st.text("abé.*%_\n", max_size=12))
def test_a_like_pattern_without_backtracking_matches_the_same_texts(pattern: str, text: str) -> None:
    spark = patterns.like(pattern)
    assert spark is not None
    java = patterns.without_backtracking(spark)
    if java is not None:
        python = re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: re.escape(chr(int(m[1], 16))), java).replace("\\z", "\\Z")
        assert (re.match(python, text) is not None) == patterns.matches(text, pattern)


_ATOMS = st.sampled_from(["a", "b", "&", "=", "[^&]", "[ab]", ".", "^", "$", "\\y", "é"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
        inner.map(lambda part: f"({part})"),
    ),
    max_leaves=8,
)


@given(_PATTERNS, st.text("ab&=é\n", max_size=8))
def test_libraries_divide_the_matches_of_deterministic_patterns_as_postgresql(pattern: str, text: str) -> None:
    compiled = Regex(pattern, "")
    if compiled.capturing is not None:
        slowly = Regex(pattern, "")
        slowly.__dict__["_is_deterministic"] = False  # so that the matcher divides the matches
        assert list(compiled.find_all(text)) == list(slowly.find_all(text))
    if compiled.java_with_groups is not None:
        match, ours = (
            regex.search(compiled.java_with_groups.replace("\\z", "\\Z"), text, regex.ASCII),
            compiled.find(text),
        )
        assert (match is None) == (ours is None)
        if match is not None and ours is not None:
            assert match.regs == ours.spans


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(&|^)channel_id=([^&]*)", True),
        ("([^@]+)@(.*)", True),
        ("(ab)*c", False),  # the group is in a repetition
        ("(ab)?c", True),
        ("a|ab", False),
        ("a*ab", False),
        ("(a|)b", True),
        ("(|a)b?", False),  # the empty branch precedes a longer match
        ("a*?b", False),
        ("[ab]x|[bc]y", False),  # classes are not compared with classes
    ],
)
def test_deterministic_patterns(pattern: str, expected: bool) -> None:
    assert is_deterministic(Regex(pattern, "").root) is expected


def test_spark_gets_patterns_with_groups_that_are_part_of_every_match() -> None:
    assert Regex("(&|^)channel_id=([^&]*)", "").java_with_groups is not None
    assert Regex("(ab)?c", "").java_with_groups is None  # regexp_extract() returns '' for a missing group
    assert Regex("([^@]+)@(.*)", "").java_with_groups is None  # quadratic in a text without @


@pytest.mark.parametrize("part", ["{}?", "(?:{}?|[^{}])", "{}?[a-z]"])
def test_the_examination_of_long_patterns_is_bounded(part: str) -> None:
    letters = [chr(0x4E00 + number) for number in range(4_000)]
    long = "".join(part.format(letter, letter) for letter in letters)
    assert not is_deterministic(Regex(f"(?:{long})|(?:{long})", "").root)


@pytest.mark.parametrize("count", ["256", "9" * 5_000, "1," + "9" * 5_000])
def test_a_repetition_count_of_any_length_is_refused(count: str) -> None:
    with pytest.raises(PgError, match=r"invalid repetition count\(s\)"):
        Regex(f"a{{{count}}}", "")
    Regex("a{" + "0" * 5_000 + "7}", "")
