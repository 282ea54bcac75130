"""The synopses of the documentation and the grammar accept the same statements."""

from __future__ import annotations

import ast
import contextlib
import random
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from protocol.pgwire.errors import PgError
from server.sql.grammar import rules
from server.sql.grammar.parse import _OUTER_RULES, _RULES, parse_each
from server.sql.grammar.rules import sequences, sinks, sources, tables, transactions, writes
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.explain import ExplainFormat
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.roles import GrantKind
from server.sql.grammar.statements.show import ShowKind
from server.sql.grammar.token_reader import TokenReader
from tests.docs.pages import examples, executes
from tests.docs.synopsis import Choice, Sequence, Synopses, parsed

PAGES = ("syntax.md", "subscribe.md", "holds.md", "sinks.md", "roles.md")
VALUES = {
    "element": "a[1]",
    **dict.fromkeys(("expression", "value", "count", "number", "time"), "1"),
    "condition": "a > 1",
    "column": "a",
    "table": "t",
    "interval": "'1 hour'",
    "type": "text",
    "integer_type": "bigint",
    "operator_class": "int4_ops",
    "role": "r",
    "schema": "s",
    "option": "verbose",
    "definition": "CREATE SCHEMA s",
    "error_name": "others",
}
"""What is written for the names and values of synopses; for all others their own names."""
RANDOM = 8
"""The number of random statements of each synopsis."""


@cache
def synopses() -> Synopses:
    found = Synopses()
    for page in PAGES:
        for block in examples(page, "synopsis"):
            found.add(block)
    return found


def covering(sequence: Sequence) -> Iterator[str]:
    """Statements that contain each option of a synopsis, with as little else as possible.

    The options of queries occur where a synopsis names `select`, and not in every other one that has a query.
    """
    every = synopses()
    for wanted, number in every.choices(sequence, frozenset(["query"])):
        path = every.path_to(sequence, wanted)
        assert path is not None
        path[wanted] = number
        yield every.text(sequence, VALUES, lambda choice, path=path: path.get(choice, 0), lambda item: False)
    yield every.text(sequence, VALUES, lambda choice: 0, lambda item: False)


def repeating(sequence: Sequence) -> Iterator[str]:
    """Statements that contain each repetition of a synopsis."""
    every = synopses()
    for wanted in every.repeats(sequence, frozenset(["query"])):
        path = every.path_to(sequence, wanted)
        assert path is not None
        yield every.text(
            sequence, VALUES, lambda choice, path=path: path.get(choice, 0), lambda item, wanted=wanted: item is wanted
        )


def at_random(sequence: Sequence, seed: int) -> str:
    source = random.Random(seed)

    def choose(choice: Choice) -> int:
        return source.randrange(len(choice.options)) if source.random() < 0.5 else 0

    return synopses().text(sequence, VALUES, choose, lambda item: source.random() < 0.2)


def test_the_notation() -> None:
    found = Synopses()
    found.add("A { b | C } [ D ]\n    [ ( e [, ...] ) ]\nF e [...]\n\ne is:\n    { 1 | 'x' }\n")
    assert [text.split()[0] for text, _ in found.statements] == ["A", "F"]
    first = found.statements[0][1]
    assert found.text(first, {"b": "q"}, lambda choice: 0, lambda item: False) == "A q"
    assert found.text(first, {}, lambda choice: 1, lambda item: True) == "A C D ( 'x', 'x' )"
    assert found.words() == {*"abcdf", "e", "(", ")", "1", "'x'"}
    with pytest.raises(ValueError, match="unbalanced"):
        parsed("A [ B }")


@executes("syntax.md", "synopsis")
@executes("subscribe.md", "synopsis")
@executes("holds.md", "synopsis")
@executes("sinks.md", "synopsis")
@executes("roles.md", "synopsis")
@pytest.mark.parametrize("number", range(len(synopses().statements)))
def test_the_parser_accepts_the_synopsis(number: int) -> None:
    text, sequence = synopses().statements[number]
    for statement in covering(sequence):
        try:
            assert len(parse_each(statement)) == 1
        except PgError as error:
            pytest.fail(f"{text}\n{statement}\n{error} {error.hint or ''}")
    for statement in (*repeating(sequence), *(at_random(sequence, seed) for seed in range(RANDOM))):
        try:
            parse_each(statement)
        except PgError as error:  # parts that exclude each other have messages of their own
            if error.message.startswith("syntax error at"):
                pytest.fail(f"{text}\n{statement}\n{error.message}")


# -- what the grammar accepts has a synopsis ---------------------------------------------------------------------------

Site = tuple[str, int, tuple[str, ...]]
"""The file and line of a call of TokenReader, and the words that it accepts."""
_ACCEPTING = ("take", "expect", "choose", "expect_one_of")
RULES = Path(rules.__file__).parent


def sites() -> set[Site]:
    """The calls in the rules that accept words."""
    found: set[Site] = set()
    for path in RULES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ACCEPTING:
                words = [part.value for part in node.args if isinstance(part, ast.Constant)]
                if node.func.attr in ("take", "expect"):
                    if len(words) == len(node.args):
                        found.add((path.name, node.lineno, tuple(words)))
                else:
                    found |= {(path.name, node.lineno, (word,)) for word in words}
    return found


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> set[Site]:
    """The words that the rules accept while the test runs, with the calls that accepted them."""
    found: set[Site] = set()

    def note(frame: FrameType, words: tuple[str, ...]) -> None:
        path = Path(frame.f_code.co_filename)
        if path.parent == RULES:
            found.add((path.name, frame.f_lineno, words))

    take, expect, choose, expect_one_of = (getattr(TokenReader, name) for name in _ACCEPTING)

    def noted_take(self: TokenReader, *words: str) -> bool:
        if taken := take(self, *words):
            note(sys._getframe(1), words)
        return taken

    def noted_expect(self: TokenReader, *words: str) -> None:
        expect(self, *words)
        note(sys._getframe(1), words)

    def noted_choose(self: TokenReader, *words: str) -> str:
        word = choose(self, *words)
        note(sys._getframe(1), (word,))
        return word

    def noted_expect_one_of(self: TokenReader, *words: str) -> str:
        word = expect_one_of(self, *words)
        note(sys._getframe(1), (word,))
        return word

    for name, method in zip(_ACCEPTING, (noted_take, noted_expect, noted_choose, noted_expect_one_of), strict=True):
        monkeypatch.setattr(TokenReader, name, method)
    return found


@pytest.mark.long
def test_every_statement_and_keyword_has_a_synopsis(accepted: set[Site]) -> None:
    kinds: set[type[Any]] = set()
    for _, sequence in synopses().statements:
        for statement in (*covering(sequence), *repeating(sequence)):
            with contextlib.suppress(PgError):  # the test above decides which are allowed
                kinds |= {type(each) for each in parse_each(statement)}
    assert set(typing.get_args(Statement)) - kinds == set()
    missing = sites() - accepted
    assert not missing, "\n".join(f"{file}:{line}: {' '.join(words)}" for file, line, words in sorted(missing))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(tuple(_RULES) + tuple(_OUTER_RULES), id="first keywords"),
        pytest.param(tuple(ObjectKind), id="object kinds"),
        pytest.param(tuple(ShowKind), id="SHOW"),
        pytest.param(tuple(GrantKind), id="GRANT"),
        pytest.param(tuple(ExplainFormat), id="EXPLAIN"),
        pytest.param(transactions._ISOLATION_LEVELS, id="isolation levels"),
        pytest.param(writes._LOCK_MODES, id="lock modes"),
        pytest.param(tables._LIKE_PROPERTIES, id="LIKE"),
        pytest.param(sequences._SEQUENCE_WORDS, id="sequences"),
        pytest.param(sinks.TOPIC_OPTIONS, id="topics"),
        *(pytest.param(options, id=system) for system, options in sources.CONNECTION_OPTIONS.items()),
        *(pytest.param(options, id=f"from {system}") for system, options in sources.SOURCE_OPTIONS.items()),
        *(pytest.param((name, *options), id=name) for name, options in sources.GENERATOR_OPTIONS.items()),
    ],
)
def test_words_in_tables_of_the_grammar_have_a_synopsis(words: tuple[str, ...]) -> None:
    known = synopses().words()
    assert {word for phrase in words for word in phrase.split()} - known == set()
