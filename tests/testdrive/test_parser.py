"""The parser of `.td` files: every rule of the format, the errors, and properties of quoting and positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testdrive.parser import (
    Action,
    FailingQuery,
    Hashed,
    Query,
    Rows,
    TextQuery,
    escaped,
    parse,
    quoted,
    words,
)
from testdrive.report import ParseError, rewritten


def one(text: str) -> Action | Query | TextQuery | FailingQuery:
    [command] = parse(text)
    return command


def query(text: str) -> Query:
    command = one(text)
    assert isinstance(command, Query)
    return command


def rows(text: str) -> Rows:
    expected = query(text).expected
    assert isinstance(expected, Rows)
    return expected


def action(text: str) -> Action:
    command = one(text)
    assert isinstance(command, Action)
    return command


def test_every_sigil_is_parsed_as_its_command() -> None:
    text = "$ nop\n> SELECT 1\n1\n? EXPLAIN x\nplan\n! SELECT\ncontains:y\n"
    assert [type(command) for command in parse(text)] == [Action, Query, TextQuery, FailingQuery]
    assert [command.location.line for command in parse(text)] == [1, 2, 4, 6]


def test_the_blank_after_a_sigil_is_optional() -> None:
    assert query(">SELECT 1").sql == query("> SELECT 1").sql == "SELECT 1"


def test_sql_keeps_line_breaks_without_the_two_spaces() -> None:
    assert query("> SELECT\n    a,\n  b\n1 2").sql == "SELECT\n  a,\nb"


def test_comments_and_blank_lines_are_ignored() -> None:
    text = "# file\n\n> SELECT\n# inside\n\n  1\n\n# between\n1\n\n# last row\n2\n# end\n"
    assert query(text).sql == "SELECT\n1"
    assert rows(text).rows == (("1",), ("2",))


def test_rows_are_split_and_unquoted() -> None:
    body = r'a "b c" <null> "" "q\"\\\n\t" \xc3 {1,2}'
    assert rows(f"> SELECT\n{body}").rows == (("a", "b c", "<null>", "", 'q"\\\n\t', r"\xc3", "{1,2}"),)


def test_rows_are_continued_by_two_spaces() -> None:
    assert rows("> SELECT\na b\n  c\nd e f").rows == (("a", "b", "c"), ("d", "e", "f"))


def test_a_sigil_in_a_body_is_escaped() -> None:
    assert rows("> SELECT\n\\> 1\n\\# 2\n\\$x\n\\\\x").rows == ((">", "1"), ("#", "2"), ("$x",), ("\\x",))


def test_three_dashes_make_the_first_line_the_column_names() -> None:
    expected = rows('> SELECT\na "b c"\n------\n1 2')
    assert expected.columns == ("a", "b c")
    assert expected.rows == (("1", "2"),)


def test_two_dashes_are_a_row() -> None:
    assert rows("> SELECT\na\n--").columns is None


def test_a_hash_replaces_rows() -> None:
    expected = query("> SELECT\n6 values hashing to 0123456789abcdef0123456789abcdef").expected
    assert expected == Hashed(6, "0123456789abcdef0123456789abcdef")


def test_text_queries_keep_blank_lines_and_indentation() -> None:
    command = parse("? EXPLAIN\n  SELECT 1\nTop:\n  Get\n\nSource\n\n\n> SELECT 1")[0]
    assert isinstance(command, TextQuery)
    assert command.sql == "EXPLAIN\nSELECT 1"
    assert command.expected == ("Top:", "  Get", "", "Source")


@pytest.mark.parametrize("how", ["contains", "exact", "regex"])
def test_failing_queries_specify_the_expected_error(how: str) -> None:
    command = one(f"! SELECT x\n{how}:does not: exist\nhint:Try\ndetail: No.")
    assert isinstance(command, FailingQuery)
    assert (command.how, command.text, command.detail, command.hint) == (how, "does not: exist", "No.", "Try")


def test_failing_queries_may_expect_a_timeout() -> None:
    command = one("! FETCH c\ntimeout")
    assert isinstance(command, FailingQuery)
    assert command.how == "timeout"


def test_arguments_may_be_nested_and_quoted() -> None:
    command = action('$ set-x a=1 b="v v" c={"k": [1, "} \\" "]} d=[x y] e f= g=h=i\nbody\n\\  line')
    assert command.name == "set-x"
    assert command.arguments == {
        "a": "1",
        "b": "v v",
        "c": '{"k": [1, "} \\" "]}',
        "d": "[x y]",
        "e": "",
        "f": "",
        "g": "h=i",
    }
    assert command.body == ("body", "  line")


def test_the_first_lines_of_an_action_are_joined() -> None:
    command = action("$ set\n  a=1\n  b={\n  1}\nbody")
    assert command.arguments == {"a": "1", "b": "{ 1}"}
    assert command.body == ("body",)


@pytest.mark.parametrize(
    ("guard", "admitted"),
    [
        ("version>=5", {5, 6}),
        ("version<5", {3, 4}),
        ("version=4", {4}),
        ("4<=version<6", {4, 5}),
        ("3<version<=5", {4, 5}),
    ],
)
def test_version_guards(guard: str, admitted: set[int]) -> None:
    found = query(f">[{guard}] SELECT 1")
    assert found.location.guard is not None
    assert found.sql == "SELECT 1"
    assert {version for version in range(3, 7) if found.location.guard.admits(version)} == admitted


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n1 row without a query\n> SELECT", 2),
        ("> SELECT 1\n1\n>", 3),
        ('> SELECT 1\n"open', 1),
        ("$ set a={", 1),
        ("$ set a=1 a=2", 1),
        ("$ Set", 1),
        ("$", 1),
        (">[version~5] SELECT 1", 1),
        ("! SELECT", 1),
        ("! SELECT\nmessage:x", 1),
        ("! SELECT\ncontains:x\nhint:a\nhint:b", 1),
    ],
)
def test_ill_formed_scripts_name_their_line(text: str, line: int) -> None:
    with pytest.raises(ParseError) as error:
        parse(text)
    assert error.value.line == line


@given(st.lists(st.text()))
def test_quoted_values_are_parsed_to_themselves(values: list[str]) -> None:
    assert words(" ".join(map(quoted, values))) == values


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")).filter(str.strip), max_size=4))
def test_escaped_lines_are_parsed_to_themselves(lines: list[str]) -> None:
    text = "\n".join(["$ nop", *map(escaped, lines)])
    assert action(text).body == tuple(lines)


@given(st.lists(st.text("aé☃ '", min_size=1), min_size=1, max_size=3))
def test_replacing_a_body_changes_no_other_byte(values: list[str]) -> None:
    source = "# ☃\r\n> SELECT 'é'\nold é\n  row\n\n# tail\n> SELECT 2\n2".encode()
    span = parse(source.decode())[0].location.body
    new = [escaped(quoted(value)) for value in values]
    changed = rewritten(source, {span: new}).decode()
    assert changed == "\n".join(["# ☃\r\n> SELECT 'é'", *new, "\n# tail\n> SELECT 2\n2"])
    first = parse(changed)[0]
    assert isinstance(first, Query)
    assert first.expected == Rows(None, tuple((value,) for value in values))
