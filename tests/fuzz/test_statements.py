"""Damaged statements to the parser, and some of them to the planner. `tests/server/sql/test_bad_sql.py` has cases."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from protocol.pgwire.errors import PgError
from server.sql.grammar.lexer import words
from server.sql.grammar.parse import parse
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.plan import plan_query
from server.sql.writes.statements import plan_delete, plan_insert, plan_update
from tests.fuzz.limits import limited
from tests.fuzz.mutations import damaged, portion, rearranged, seeded
from tests.server.sql.test_bad_sql import context, statements
from tests.server.sql.test_parse import GOOD

pytestmark = pytest.mark.fuzz

_TOKEN = re.compile(r"\s+|\w+|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|::|\|\||[<>=!]=|\$\d+|.", re.DOTALL)
_ADDED = [
    f" {word} "
    for word in sorted(
        words(
            """
    ( ) [ ] , ; . :: := => + - * / % ^ < = <> ! ~ || -> ->> @> $1 $0 $99999999999 $$ $a$ ' '' " "" E' U&' B' -- /*
    */ \\ 0 1 -1 1.5 .5 1. 1e400 0x 1_000 9999999999999999999999 null true default 'x' "x" '1 day' ::int ::text[]
    'infinity' ::numeric(1000,1000) select from where group by having order limit offset union all with recursive
    as lateral join on using case when then else end exists in any not and or is distinct between like array row
    values insert into update set delete returning create table view materialized index source sink primary key if
    cascade explain copy stdin subscribe over partition rows preceding filter within grouping sets cube interval at
    time zone é 😀 \0 \ud800"""
        )
    )
]


def damaged_statement(tokens: list[list[str]], random: Random) -> str:
    """A statement whose tokens are rearranged or mixed with those of another. Rarely characters are damaged, too."""
    own, other = random.choice(tokens), random.choice(tokens)
    match random.randrange(10):
        case 0:
            own = own[: random.randrange(len(own) + 1)] + other[random.randrange(len(other) + 1) :]
        case 1:
            at = random.randrange(len(own))
            own = [*own[:at], "(", *other, ")", *own[at + 1 :]]
        case 2:
            at = random.randrange(len(own))
            own = own[:at] + own[at : at + random.choice((1, 2, 6))] * random.choice((2, 5, 60)) + own[at:]
        case 3 | 4 | 5:
            own = rearranged(own, _ADDED, random)
        case _:
            own = rearranged(own, other, random)
    text = "".join(own)
    if random.random() < 0.05:
        text = damaged(text.encode(errors="replace"), random).decode(errors="surrogateescape")
    return text


def outcome(text: str, *, planned: bool) -> str:
    """The SQLSTATE of the error, which is inside the text, or the statement's class."""
    try:
        found = parse(text)
        for statement in found if planned else ():
            match statement:
                case Select():
                    plan_query(statement.query, context())
                case Insert():
                    plan_insert(statement, context())
                case Update():
                    plan_update(statement, context())
                case Delete():
                    plan_delete(statement, context())
        return type(found[0]).__name__ if found else "nothing"
    except PgError as error:
        if not error.message or not 1 <= (error.position or 1) <= len(text) + 1:
            raise AssertionError(f"message {error.message!r}, position {error.position}") from error
        return error.sqlstate.value


@pytest.mark.parametrize("planned", [False, True], ids=["parsed", "planned"])
def test_damaged_statements(planned: bool) -> None:
    random = seeded("statements", planned)
    texts = [statements() if planned else GOOD, statements()]
    tokens = [[_TOKEN.findall(text) for text in group] for group in texts]
    seen: Counter[str] = Counter()
    with limited(seconds_max=10) as limits:
        for _ in range(portion(30_000 if planned else 100_000)):
            text = damaged_statement(random.choice(tokens), random)
            with limits.of(text):
                seen[outcome(text, planned=planned)] += 1
    print(seen.most_common(12))
    if limits.inputs >= 1_000:
        assert {"42601", "0A000", "Select"} <= set(seen)
        assert seen["42601"] < 0.8 * limits.inputs  # most errors would be those of the first token
