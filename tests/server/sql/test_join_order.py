"""The order of inner joins, compared with a plain form of the search, which takes far longer for many relations."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sql.columns import ids
from server.sql.expressions import Expression
from server.sql.relations import Relation
from server.sql.rewrite import joins, passes, rewritten
from tests.examples import examples
from tests.server.dataflow.histories import TABLES, planned
from tests.server.dataflow.histories import ids as tables

RELATIONS_MAX = 9


def random_query(chance: random.Random) -> str:
    """A join of up to RELATIONS_MAX tables by random equalities and other conditions."""
    names = [chance.choice(sorted(TABLES)) for _ in range(chance.randint(2, RELATIONS_MAX))]
    columns = {"t": "kv", "u": "k", "w": "kx"}

    def operand() -> str:
        number = chance.randrange(len(names))
        column = f"r{number}.{chance.choice(columns[names[number]])}"
        return chance.choice([column, column, f"{column} + {operand()}" if chance.random() < 0.3 else column])

    conditions = [
        f"{operand()} {chance.choice('====<')} {chance.choice([operand(), operand(), operand(), '1'])}"
        for _ in range(chance.randint(1, 2 * len(names)))
    ]
    relations = ", ".join(f"{name} r{number}" for number, name in enumerate(names))
    return f"SELECT r0.k FROM {relations} WHERE {' AND '.join(conditions)}"


def plain_order(sides: Sequence[Relation], conditions: Sequence[Expression], sizes: joins.Sizes) -> list[int]:
    """As `joins._order` for at most STARTS_MAX relations: it searches all conditions for keys in each step."""
    assert len(sides) <= joins.STARTS_MAX
    known = [
        joins._Side(ids(s.columns), joins._rows(s, sizes, filtered=True), joins._rows(s, sizes, filtered=False))
        for s in sides
    ]
    values = joins._values_of_classes(known, conditions)
    best: tuple[float, list[int]] | None = None
    for first in range(len(known)):
        order, there, rows, made = [first], set(known[first].columns), known[first].rows, 0.0
        while remaining := [number for number in range(len(known)) if number not in order]:
            keys = {n: [c for c in conditions if joins._is_key(c, there, known[n].columns)] for n in remaining}
            grown = {}
            for number in [n for n in remaining if keys[n]] or remaining:
                different = {column: values[column] for column in map(joins._first_column, keys[number])}
                grown[number] = joins._joined_rows(rows, known[number], different)
            number = min(grown, key=grown.__getitem__)
            rows = grown[number]
            made += rows
            order.append(number)
            there |= known[number].columns
        if best is None or made < best[0]:
            best = (made, order)
    assert best is not None
    return best[1]


@examples(300)
@given(st.integers(0, 1 << 32))
def test_the_order_is_that_of_the_plain_search(seed: int) -> None:
    chance = random.Random(seed)
    relation = planned(random_query(chance)).relation
    sizes = {id: chance.choice([0, 1, 10, 1_000, 100_000]) for id in tables().values() if chance.random() < 0.8}
    searched = joins._order
    compared = 0

    def order(sides: Sequence[Relation], conditions: Sequence[Expression], sizes: joins.Sizes) -> list[int]:
        nonlocal compared
        compared += 1
        result = searched(sides, conditions, sizes)
        assert result == plain_order(sides, conditions, sizes)
        return result

    with mock.patch.object(joins, "_order", order):
        rewritten(relation, sizes)
    assert compared


@pytest.mark.parametrize("form", ["chain", "star", "cross"])
def test_many_relations_are_ordered_in_seconds(form: str) -> None:
    """A search whose time grows with the fifth power of the relations would take minutes."""
    conditions = {"chain": "r{0}.k = r{1}.v", "star": "r{0}.k = r0.v", "cross": "r{0}.k < r{1}.k"}[form]
    numbers = range(1, 100)
    tables = ", ".join(f"t r{number}" for number in range(100))
    relation = planned(
        f"SELECT r0.k FROM {tables} WHERE {' AND '.join(conditions.format(n, n - 1) for n in numbers)}"
    ).relation
    for name, rewrite in passes({}):
        begun = time.process_time()
        relation = rewrite(relation)
        if name == "joins":
            assert time.process_time() - begun < 5
            return
    raise AssertionError("no pass orders joins")
