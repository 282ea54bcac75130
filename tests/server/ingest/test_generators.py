"""The changes of a load generator's ticks: the same however they are divided, and never a negative count."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.source_definition import Envelope, Format
from protocol.pgwire.types import parse_type
from server.ingest.generators.auction import BIDS, Auction
from server.ingest.generators.counter import Counter
from server.ingest.generators.generator import Generator
from server.ingest.generators.key_value import KeyValue
from server.ingest.generators.tpch import Tpch
from server.ingest.option_values import OptionValues
from tests.examples import examples

TICKS = 30
START_US = 1_700_000_000_000_000


def generators() -> dict[str, Generator]:
    upsert = Format(envelope=Envelope.UPSERT)
    keys = OptionValues({"keys": "7", "batch size": "3", "value size": "11"})
    return {
        "counter": Counter(OptionValues({})),
        "bounded counter": Counter(OptionValues({"max cardinality": "4"})),
        "auction": Auction(OptionValues({"seed": "3"})),
        "key value": KeyValue(keys, None),
        "upserts": KeyValue(keys, upsert),
        "tpch": Tpch(OptionValues({"scale factor": "0.00002"})),
    }


def rows_of(generator: Generator, bounds: list[int]) -> dict[str, Multiset[tuple[object, ...]]]:
    """The rows of each output after the ticks that `bounds` divides."""
    found: dict[str, Multiset[tuple[object, ...]]] = {o.reference: Multiset() for o in generator.outputs}
    for first, end in pairwise(bounds):
        changes = generator.changes(list(found), first, end, START_US)
        for reference, tables in changes.items():
            apply(found[reference], tables)
    return found


def apply(rows: Multiset[tuple[object, ...]], tables: list[pa.Table]) -> None:
    for table in tables:
        changed = updates.as_changes(table)
        for *row, diff in zip(*(column.to_pylist() for column in changed.columns), strict=True):
            rows[tuple(row)] += diff
    for row in [row for row, count in rows.items() if not count]:
        del rows[row]


@pytest.mark.parametrize("name", generators())
@examples(20)
@given(data=st.data())
def test_changes_do_not_depend_on_how_ticks_are_divided(name: str, data: st.DataObject) -> None:
    generator = generators()[name]
    cuts = sorted(data.draw(st.sets(st.integers(1, TICKS - 1))))
    expected = rows_of(generator, [0, TICKS])
    assert rows_of(generators()[name], [0, *cuts, TICKS]) == expected
    assert all(count > 0 for rows in expected.values() for count in rows.values())


@pytest.mark.parametrize("name", generators())
def test_rows_have_the_types_and_the_keys_of_their_output(name: str) -> None:
    generator = generators()[name]
    rows = rows_of(generator, [0, TICKS])
    for output in generator.outputs:
        for table in generator.changes([output.reference], 0, TICKS, START_US).get(output.reference, ()):
            types = [parse_type(column.type).arrow for column in output.columns]
            assert table.schema.types[: len(types)] == types, output
            assert table.column_names[: len(types)] == [f"c{n}" for n in range(len(types))]
        if output.key:
            names = [column.name for column in output.columns]
            keys = [tuple(row[names.index(name)] for name in output.key) for row in rows[output.reference].elements()]
            assert len(keys) == len(set(keys)), output


def test_the_counter_counts() -> None:
    rows = rows_of(generators()["counter"], [0, TICKS])["counter"]
    assert sorted(rows.elements()) == [(n,) for n in range(1, TICKS + 1)]
    rows = rows_of(generators()["bounded counter"], [0, TICKS])["counter"]
    assert sorted(rows.elements()) == [(n,) for n in range(TICKS - 3, TICKS + 1)]


def test_each_auction_has_bids_of_known_users() -> None:
    found = rows_of(generators()["auction"], [0, 1 + 5 * (BIDS + 1)])
    assert sorted(row[0] for row in found["auctions"]) == [1, 2, 3, 4, 5]
    assert Multiset(row[2] for row in found["bids"]) == dict.fromkeys(range(1, 6), BIDS)
    users = {row[0] for row in found["users"]}
    assert {row[1] for row in found["bids"]} <= users
    assert {row[1] for row in found["auctions"]} <= users


def test_a_tick_of_tpch_replaces_an_order_and_its_items() -> None:
    generator = generators()["tpch"]
    before = rows_of(generator, [0, generator.snapshot_ticks])
    after = rows_of(generator, [0, generator.snapshot_ticks + 1])
    assert {row[0] for row in before["orders"]} == {row[0] for row in after["orders"]}
    changed = before["orders"] - after["orders"]
    assert len(changed) == 1
    ((order, *_),) = changed
    assert {row[0] for row in before["lineitem"] - after["lineitem"]} == {order}
    assert before["customer"] == after["customer"]
    totals = total_prices(after)
    assert {row[0]: row[3] for row in after["orders"]} == totals


def total_prices(rows: Mapping[str, Multiset[tuple[object, ...]]]) -> dict[object, object]:
    totals: dict[object, object] = {}
    for order, *_ in rows["orders"]:
        totals[order] = sum(row[5] for row in rows["lineitem"] if row[0] == order)  # type: ignore[misc]
    return totals


def test_other_seeds_give_other_rows() -> None:
    found = [rows_of(Auction(OptionValues({"seed": seed})), [0, TICKS])["bids"] for seed in ("1", "2", "1")]
    assert found[0] == found[2] != found[1]
