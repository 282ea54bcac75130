"""The grammar: the statement for each text and the position of each error.

tests/scripts/parse/*.txt contain statements as `rendered` prints them (class and fields, inner queries and expressions
by their text) and error messages that PostgreSQL does not have. Each text of `SAME_AS_POSTGRES` must give PostgreSQL's
message and position.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from inspect import isfunction, signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.parsers.postgres import PostgresParser

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.functions.strings import quote_text
from server.sql.grammar import dialect, lexer
from server.sql.grammar import trees as trees_module
from server.sql.grammar.checkpoint import Stopped, stoppable
from server.sql.grammar.lexer import (
    COLUMN_NAME_WORDS,
    RESERVED_WORDS,
    TARGETS_MAX,
    TYPE_FUNCTION_WORDS,
    Kind,
    fold,
    quote_identifier,
    tokenize,
    words,
)
from server.sql.grammar.parse import parse, parse_expression, parse_query
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.blocks import DoBlock
from server.sql.grammar.statements.parts import Expr, Ident, Name, Parsed, Query, position_of
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.tables import CreateTable
from tests.examples import examples


def rendered(node: Any) -> str:
    """Returns the class and its fields in parentheses. False, absent and empty fields are omitted."""
    if isinstance(node, Query | Expr):
        return f"`{node.text}`"
    if isinstance(node, Name):
        return "/".join(node.parts)
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, PgType):
        return str(node)
    if isinstance(node, tuple):
        return f"[{', '.join(rendered(item) for item in node)}]"
    if is_dataclass(node):
        shown = [
            f"{f.name}={rendered(value)}"
            for f in fields(node)
            if f.name not in ("text", "offset") and (value := getattr(node, f.name)) not in (None, False, ())
        ]
        return f"{type(node).__name__}({', '.join(shown)})"
    return str(node.value) if isinstance(node, Enum) else repr(node)


def outcome(text: str) -> str:
    """Returns the statements of `text` as `rendered` prints them, or the error."""
    try:
        return ", ".join(rendered(statement) for statement in parse(text))
    except PgError as error:
        return f"{error.sqlstate.value} at {error.position}: {error.message}"


SCRIPTS = Path(__file__).parents[2] / "scripts" / "parse"
GOOD = re.findall(r"(?m)^(.+)\n----$", (SCRIPTS / "statements.txt").read_text())
TOO_DEEP = "54001 at None: stack depth limit exceeded"

UNWRITABLE = [
    ("select '\0'", '22021 at None: invalid byte sequence for encoding "UTF8": 0x00'),
    ("select '\ud800'", '22021 at None: invalid byte sequence for encoding "UTF8"'),
    ("select " + "1" * 5000, "22003 at 8: value overflows numeric format"),
    ("select " + "(" * 5000 + "1" + ")" * 5000, TOO_DEEP),
    ("select " + "array[" * 40 + "1" + "]" * 40, TOO_DEEP),
    ("select " + "not " * 5000 + "true", TOO_DEEP),
]

SAME_AS_POSTGRES = """
foo|create tabl t|create table t (a int|create table select (a int)|create table t (select int)
create table a.b.c.d (x int)|create table t (a int null not null)
create table t (a int primary key, b int primary key)|create table t (a int default 1 default 2)
create table t (a int,)|create table t (a int not)|create table t (primary key)|begin isolation level foo|begin read
begin not|start transaction foo|commit foo|abort and|set x|set x =|set a = 1,|set local|set transaction
set time zone|set time zone 1 2|set session characteristics|show|show a b|reset|discard foo|update t set
update t set a|update t set a =|update t set a = 1,|update t set a = 1 where|insert into|insert into t
insert into t () values (1)|insert into t (a,) values (1)|insert into t values (1,)|insert into t default|delete t
delete from t where|delete from t returning|truncate|truncate t foo|copy t|copy t from|copy (select 1
copy (select 1) to|copy (select 1) from stdin|copy t to stdout (format csv|declare c|declare c cursor
declare c cursor for|fetch|fetch 1 2 c|fetch all|close a b|drop|drop table|drop table a,|drop table if exists|alter
alter table t rename to|alter table t rename|create view v|create view v as
create view v as insert into t values (1)|create index i on t|create index i on t (|prepare a|prepare a as
prepare a (int|execute a(|execute a(1|deallocate|explain|explain (costs|explain (costs) drop table x|select 1a
select 0x|select 1_|select 1__0|select 1e|select 1.5e+x|select $1a|select 'abc|select "abc|select ""|select /* abc
select $a$ abc|select E'abc\\'|select 'a''b|select E'\\u0000'|select 1..2|select :a|select {1}|select \\|select #
select 'a' 'b'|select 1 'x'|select $1 $2|select 1 +|select 1 + from t|select from where|select (1
select (1; select 2|select 1;;select 2 2 2|select 2 2|select a b c|select 1,|select , 1|select 1 as|select a as 1
select * from t,|select * *|select * from|select * from t where|select * from t order|select * from t order by
select 1 from t group by|select 1 limit|select * from t join|select * from t join u|select * from t join u on
select * from t as|select 1 union|select case|select case when 1 then 2|select cast(1 as)|select cast(1)
select 1 in (|select not|select f(1|select a[1|select a..b|select array[|select row(|select 1 where 2 from t
select distinct on|select count(*) over|select select|select check|values|values 1|values (1,|values (1) (2)|table
table t t2|with|with x|with x as|with x as (|with x as (select 1)|select 1 from t limit 1 limit 2|select (select 1
select order from t|select * a from t
create table t (a int) with (fillfactor =|vacuum (
explain (foo) select 1|explain (format x) select 1|explain (format 3) select 1
"""


@pytest.mark.parametrize("script", ["statements", "errors"])
def test_statements_and_errors_of_scripts(script: str) -> None:
    path = SCRIPTS / f"{script}.txt"
    expected = path.read_text()
    actual = re.sub(r"(?m)^(.+)\n----\n.*$", lambda block: f"{block[1]}\n----\n{outcome(block[1])}", expected)
    if os.environ.get("TIDEWIRE_REWRITE"):
        path.write_text(actual)
    assert actual == expected


@pytest.mark.parametrize("text", GOOD)
def test_case_whitespace_and_comments_are_insignificant(text: str) -> None:
    """A statement in capitals, with comments between its tokens, has the same tree."""
    spaced = "".join(
        f"/* ' /* $$ */ -- */\n{word.upper() if t.kind is Kind.WORD else word} --'\n"
        for t in tokenize(text)
        for word in [text[t.start : t.end]]
    )
    plain = " ".join(text[t.start : t.end] for t in tokenize(text))
    assert [trees(s) for s in parse(spaced)] == [trees(s) for s in parse(plain)]


def trees(node: Any) -> Any:
    """Returns a statement without texts and positions."""
    if isinstance(node, tuple):
        return tuple(trees(item) for item in node)
    if is_dataclass(node) and not isinstance(node, PgType):
        values = (trees(getattr(node, f.name)) for f in fields(node) if f.name not in ("text", "offset", "position"))
        return (type(node).__name__, *values)
    return node


@pytest.mark.parametrize(("text", "expected"), UNWRITABLE)
def test_invalid_characters_numbers_and_depths(text: str, expected: str) -> None:
    assert outcome(text) == expected


def test_syntax_errors_equal_those_of_postgresql(postgres: str) -> None:
    texts = [text for line in SAME_AS_POSTGRES.strip().split("\n") for text in line.split("|")]
    differences = []
    with psycopg.connect(postgres, autocommit=True) as connection:
        for text in texts:
            with pytest.raises(psycopg.Error) as theirs:
                connection.execute(text.encode())
            diagnostics = theirs.value.diag
            assert diagnostics.sqlstate is not None
            expected = (diagnostics.sqlstate, diagnostics.message_primary, int(diagnostics.statement_position or 0))
            try:
                parse(text)
                found: tuple[str, str, int | None] | None = None
            except PgError as error:
                found = (error.sqlstate.value, error.message, error.position)
            if found != expected:
                differences.append((text, expected, found))
    assert differences == []


def test_all_statements_of_a_text_are_parsed() -> None:
    assert parse("") == parse(" ;; -- nothing\n;/* */") == []
    statements = parse("select 1; begin;\n\n select 'ü;' ;")
    assert [(s.text, s.offset) for s in statements] == [("select 1", 0), ("begin", 10), ("select 'ü;'", 19)]
    with pytest.raises(PgError, match='near "2"') as caught:
        parse("select 'ü'; drop table t; select 1 2")
    assert caught.value.position == 36


def slices(node: Any) -> Iterator[Query | Expr | Parsed]:
    """The nodes with a place in the text, except those in a block of DO, which have their place in the block."""
    if isinstance(node, Query | Expr | Parsed):
        yield node
    if isinstance(node, DoBlock):
        return
    if isinstance(node, tuple):
        for item in node:
            yield from slices(item)
    elif is_dataclass(node) and not isinstance(node, Query | Expr | PgType):
        for field in fields(node):
            yield from slices(getattr(node, field.name))


def test_each_node_has_its_text_and_offset() -> None:
    whole = "; ".join(f"/* é */ {text}" for text in GOOD)
    count = 0
    for statement in parse(whole):
        for node in slices(statement):
            assert whole[node.offset : node.offset + len(node.text)] == node.text
            assert node.text == node.text.strip(" ;")
            count += 1
    assert count > 1.5 * len(GOOD)


def test_tree_nodes_have_positions_in_the_whole_text() -> None:
    text = "begin; select é, \"B\".c, $1, 'x', f(d) from s.t where (a is null)"
    (_, select) = parse(text)
    assert isinstance(select, Select)
    places = {
        node.sql("postgres"): text[(position_of(node) or 0) - 1 :]
        for kind in (exp.Column, exp.Literal, exp.Anonymous, exp.Table)
        for node in select.query.tree.find_all(kind)
    }
    for sql, rest in places.items():
        assert rest.lower().startswith(sql.lower()) or rest.startswith(("$1", "1", '"B"')), (sql, rest)


def test_parsing_a_single_query_or_expression() -> None:
    assert [table.db for table in parse_query('select a from "$id"."u12"').tree.find_all(exp.Table)] == ["$id"]
    assert parse_expression("1 + lower('X')").position == 1
    for bad in ("", "1;", "1 2", "select 1; select 2"):
        with pytest.raises(PgError) as caught:
            (parse_query if bad.startswith("select") else parse_expression)(bad)
        assert caught.value.sqlstate is SqlState.SYNTAX_ERROR


def test_transaction_modes() -> None:
    for text, read_only, deferrable in (
        ("begin", None, None),
        ("begin read write", False, None),
        ("begin read only, not deferrable", True, False),
        ("begin deferrable", None, True),
    ):
        (begin,) = parse(text)
        assert (begin.modes.read_only, begin.modes.deferrable) == (read_only, deferrable)  # type: ignore[union-attr]


@pytest.mark.parametrize("parser", [dialect._Parser, trees_module._Parser])
def test_the_overridden_methods_exist_in_sqlglot(parser: type) -> None:
    added = {"__init__", "_parse_plain_literal", "_parse_value_item", "_parse_search", "_parse_cycle", "_parse_name"}
    added |= {"_parse_constant", "_parse_exists_query", "_require"}
    overriding = {name: method for name, method in vars(parser).items() if isfunction(method) and name not in added}
    assert overriding
    for name, method in overriding.items():
        overridden = signature(getattr(PostgresParser, name)).parameters
        assert list(signature(method).parameters) in (list(overridden), ["self", "args", "kwargs"]), name


def test_keywords_of_other_dialects_are_names() -> None:
    text = "select qualify, pivot as top, index, date, format, value, key from database.cache as comment limit 1"
    (select,) = parse(text)
    assert isinstance(select, Select)
    names = [column.name for column in select.query.tree.find_all(exp.Column)]
    assert sorted(names) == ["date", "format", "index", "key", "pivot", "qualify", "value"]


def test_catalog_queries_of_drivers() -> None:
    """Syntax that psql and drivers use: OPERATOR(pg_catalog.~), types with a schema, arrays of any type."""
    text = "select 1 where a operator(pg_catalog.~) '^x$' and b = any($1::oid[]) and c::pg_catalog.int4 is null"
    (select,) = parse(text + " and d::tinyint is null")
    assert isinstance(select, Select)
    tree = select.query.tree
    assert tree.find(exp.RegexpLike) is not None
    kinds = [str(t.args.get("kind") or t.this.value) for t in tree.find_all(exp.DataType)]
    assert sorted(kinds) == ["ARRAY", "INT", "oid", "tinyint"]


def test_names_are_folded_and_truncated() -> None:
    (select,) = parse('select Ab, "Ab", "a""b", ÄB, ' + "x" * 70 + ', "' + "é" * 40 + '"')
    assert isinstance(select, Select)
    names = [column.name for column in select.query.tree.find_all(exp.Column)]
    assert names == ["ab", "Ab", 'a"b', "Äb", "x" * 63, "é" * 31]


@pytest.mark.parametrize(
    "literal",
    [
        *("1_000", "0x1F", "0o17", "0b101", ".5", "1.", "1e3", "1.5E-2", "'a''b'", "'a'\n  'b'", "'a' -- '\n'b'"),
        *("E'a\\n\\t\\x41\\101\\u00e9\\U0001F600\\q'", "E'\\ud83d\\ude00'", "E'it''s'", "e'a' \n 'b\\n'", "N'x'"),
        *("$$a'b$$", "$t$ $$ $t$", "E'\\xc3\\xa9'", "'\\n'"),
    ],
)
def test_literals_have_postgresqls_values(postgres: str, literal: str) -> None:
    with psycopg.connect(postgres) as connection:
        theirs = connection.execute(f"select ({literal})::text".encode()).fetchone()
    token, _ = tokenize(literal)
    ours = token.value
    if token.kind is Kind.NUMBER:
        assert theirs is not None
        assert float(theirs[0]) == float(ours)
    else:
        assert theirs == (ours,)


@given(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
        st.sampled_from(sorted(RESERVED_WORDS | TYPE_FUNCTION_WORDS | COLUMN_NAME_WORDS)),
    )
)
def test_quoted_text_parses_to_the_original(value: str) -> None:
    token, _ = tokenize(quote_text(value))
    assert (token.kind, token.value) == (Kind.STRING, value)
    identifier, _ = tokenize(quote_identifier(value))
    assert identifier.kind in (Kind.IDENT, Kind.WORD)
    assert identifier.value == value.encode()[:63].decode(errors="ignore")
    assert fold(fold(value)) == fold(value)
    name = quote_identifier(value)
    create, select = parse(f"create table {name} ({name} int); select {name}, {name} as {name} from {name}")
    assert isinstance(create, CreateTable)
    assert isinstance(select, Select)


@given(st.text(max_size=60))
@example("'" * 7)
@example("$1$$a")
def test_tokens_are_ordered_and_do_not_overlap(text: str) -> None:
    try:
        tokens = tokenize(text)
    except PgError:
        return
    starts = [t.start for t in tokens]
    assert starts == sorted(starts)
    assert all(a.end <= b.start for a, b in pairwise(tokens))
    assert tokens[-1] == (Kind.END, "", len(text), len(text))


WORDS = sorted(
    words(
        "( ) [ ] , . ; * = < > + - / ' \" $ : @ ? { \\ :: -- /* */ $$ 'a' 1 1.5 $1 E'\\ é select from where as of at"
        " least not null case when end with values in is join on by order group limit union table default recursive"
        " array over filter interval into for update set to returning up envelope key distinct"
    )
)
EXPECTED_CODES = ("42601", "0A000", "54001", "42704", "42883", "42P16")


def parsed_or_refused(text: str) -> list[Statement]:
    """Returns the statements, or an empty list if `text` is refused with an expected error."""
    try:
        return parse(text)
    except PgError as error:
        refused = error
    assert refused.sqlstate in EXPECTED_CODES or refused.sqlstate.startswith("22"), refused.sqlstate
    assert refused.position is None or 1 <= refused.position <= len(text) + 1
    return []


@examples(400)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_damaged_statements_are_parsed_or_refused(text: str, data: st.DataObject) -> None:
    """Texts with removed, inserted and repeated parts: the outcome is a list of statements or a PgError."""
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from(["", " ", *(f" {p} " for p in WORDS), text[:40]])) + text[end:]
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(0, len(text)))]
    for statement in parsed_or_refused(text):
        for node in slices(statement):
            assert text[node.offset : node.offset + len(node.text)] == node.text


@pytest.mark.parametrize("text", ["create function f() returns int", "create trigger t", "do $$ begin end $$"])
def test_refused_statements_have_a_hint(text: str) -> None:
    with pytest.raises(PgError) as refused:
        parse(text)
    assert refused.value.sqlstate == SqlState.FEATURE_NOT_SUPPORTED
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("alter hold h set schema s", "Create another hold at the time of this one, with AT, "),
        ("alter materialized view v add column a int", "CREATE OR REPLACE MATERIALIZED VIEW changes "),
    ],
)
def test_the_hint_of_a_refused_alteration_keeps_the_history(text: str, hint: str) -> None:
    with pytest.raises(PgError) as refused:
        parse(text)
    assert (refused.value.hint or "").startswith(hint)


def test_statements_that_end_early_are_parsed_or_refused() -> None:
    for text in GOOD:
        for token in tokenize(text):
            parsed_or_refused(text[: token.start])


@examples(300)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_random_words_are_parsed_or_refused(words: list[str]) -> None:
    parsed_or_refused("select " + " ".join(words))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("'" + "a''" * 300_000, "E'" + "\\'" * 300_000, "/*" * 300_000, "$a$" + "$b$" * 200_000, '"a""' * 200_000),
        *("select " + "(" * 100_000, "select '" + "a" * 1_000_000 + "'", "(" * 50_000, "explain " * 50_000),
        *("select " + "array[" * 500, "select " + "case when " * 500, "select * from (" + "a join (" * 500),
    ],
    ids=lambda text: text[:12],
)
def test_large_texts_are_parsed_in_linear_time(text: str) -> None:
    """The limit is CPU time. Quadratic or exponential parsing would take minutes."""
    began = time.thread_time()
    parsed_or_refused(text)
    assert time.thread_time() - began < 10


# -- limits -----------------------------------------------------------------------------------------------------------

MANY = 3_000


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT 1{', 1' * TARGETS_MAX}",
        f"SELECT 2; SELECT 1{', f(1, 2)' * TARGETS_MAX} FROM t",
        f"SELECT * FROM (SELECT 1{', 1' * TARGETS_MAX}",  # raised before the syntax error at the end
        f"INSERT INTO t SELECT DISTINCT ON (a) a{', ARRAY[1, 2]' * TARGETS_MAX}",
    ],
)
def test_the_select_list_limit_is_checked_during_parsing(text: str) -> None:
    with pytest.raises(PgError, match=f"target lists can have at most {TARGETS_MAX} entries") as caught:
        parse(text)
    assert caught.value.sqlstate == "54011"
    assert caught.value.position is not None


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT 1{', 1' * (TARGETS_MAX - 1)}",
        f"SELECT ARRAY[1{', 1' * MANY}], f(1{', 1' * MANY}) FROM t WHERE k IN (1{', 1' * MANY})",
        f"SELECT 1 FROM t{', t' * MANY}",
        f"SELECT 1 ORDER BY 1{', 1' * MANY}",
        f"VALUES (1){', (1)' * MANY}",
        f"GRANT SELECT ON t{', t' * MANY} TO me",
        "SELECT 1, 2;" * MANY,
    ],
)
def test_other_lists_are_not_subject_to_the_select_list_limit(text: str) -> None:
    assert parse(text)


def test_the_tokens_of_a_statement_and_of_a_text_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "STATEMENT_TOKENS_MAX", 5_000)
    monkeypatch.setattr(lexer, "TEXT_TOKENS_MAX", 20_000)
    assert len(parse("SELECT 1;" * 5_000)) == 5_000
    for text, message in (
        (f"SELECT 1; SELECT 1 WHERE 1 IN (1{', 1' * 3_000})", "statement is too long"),
        ("SELECT 1;" * 10_000, "query string is too long"),
    ):
        with pytest.raises(PgError, match=message) as caught:
            parse(text)
        assert caught.value.sqlstate == "54000"
        assert caught.value.hint is not None


def stopped_at_once(work: Callable[[str], object], text: str) -> None:
    """The work stops at the first checkpoint after the request, which is the fourth one."""
    calls = 0

    def is_stopped() -> bool:
        nonlocal calls
        calls += 1
        return calls > 3

    with pytest.raises(Stopped):
        stoppable(is_stopped, work, text)
    assert calls == 4


def test_parsing_stops_at_the_first_checkpoint_after_the_request() -> None:
    stopped_at_once(parse, f"SELECT 1 WHERE 1 IN (1{', 1' * 50_000})")


@pytest.mark.parametrize(
    "text",
    ["'a'\n" * 1_000, "'" + "''" * 5_000 + "'", "E'" + r"\n" * 1_000 + "'", "U&'" + r"\0041" * 1_000 + "'"],
    ids=["parts", "quotes", "escapes", "Unicode escapes"],
)
def test_parsing_stops_inside_a_string(text: str) -> None:
    stopped_at_once(tokenize, text)
