"""Changes found from messages are those of a plain model of the table: a dict for keys, a list for full old rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.objects.columns import Column
from protocol.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from protocol.pgwire.errors import PgError
from server.ingest.postgres.merge import UnknownRow, changes_of_keys, changes_of_rows, keys_of, needs_old_rows
from server.ingest.postgres.typed_rows import Layout, TypedRows, typed
from tests.examples import examples
from tests.protocol.pgoutput.plain import Change, Row, Unchanged, Value, written

LAYOUT = Layout(
    "public.t",
    (
        Column("a", "int4", nullable=False),
        Column("b", "text", nullable=False),
        Column("v", "int4"),
        Column("w", "text"),
    ),
)
KEY = ("c0", "c1")
UNCHANGED = Unchanged.UNCHANGED

KEYS = st.tuples(st.integers(0, 2), st.sampled_from("xy"))
VALUES = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(("long", "longer")))
OPERATIONS = st.tuples(st.sampled_from(("insert", "update", "move", "delete")), KEYS, KEYS, VALUES, st.booleans())
HISTORIES = st.lists(OPERATIONS, max_size=30)


def relation(identity: ReplicaIdentity) -> Relation:
    """The table in PostgreSQL, with the columns in another order and one that the collection does not have."""
    full = identity is ReplicaIdentity.FULL
    columns = (("w", full), ("b", True), ("new", full), ("a", True), ("v", full))
    return Relation(7, "public", "t", identity, tuple(RelationColumn(name, 25, -1, key) for name, key in columns))


def sent(a: Value, b: Value, v: Value, w: Value) -> Row:
    """A tuple as it is sent: texts, in the order of the columns in PostgreSQL."""
    return w, b, "ignored", a, v


Content = tuple[int, str, int | None, str | None]


@dataclass
class Model:
    """The table in PostgreSQL. Each operation appends its message."""

    is_full: bool
    rows: dict[tuple[int, str], tuple[int | None, str | None]] = field(default_factory=dict)
    messages: list[Change] = field(default_factory=list)

    def apply(
        self, kind: str, key: tuple[int, str], other: tuple[int, str], values: tuple[int | None, str | None], keep: bool
    ) -> None:
        """`keep`: UPDATE does not change column w, and its value is TOASTed."""
        if kind == "insert":
            if key not in self.rows:
                self.rows[key] = values
                self.messages.append(Change("I", 7, None, self._new(key, values, False)))
            return
        if key not in self.rows:
            return
        old = self.rows[key]
        after = other if kind == "move" else key
        if kind == "delete":
            del self.rows[key]
            self.messages.append(Change("D", 7, self._before(key, old), None))
        elif after == key or after not in self.rows:
            keep = keep and old[1] is not None
            new = (values[0], old[1]) if keep else values
            del self.rows[key]
            self.rows[after] = new
            before = self._before(key, old) if self.is_full or after != key else None
            self.messages.append(Change("U", 7, before, self._new(after, new, keep)))

    def _before(self, key: tuple[int, str], old: tuple[int | None, str | None]) -> tuple[str, Row]:
        a, b = str(key[0]), key[1]
        return ("O", self._new(key, old, False)) if self.is_full else ("K", (None, b, None, a, None))

    def _new(self, key: tuple[int, str], values: tuple[int | None, str | None], keep: bool) -> Row:
        v, w = values
        return sent(str(key[0]), key[1], None if v is None else str(v), UNCHANGED if keep else w)

    def content(self) -> Counter[Content]:
        return Counter((a, b, v, w) for (a, b), (v, w) in self.rows.items())

    def taken(self) -> TypedRows:
        messages, self.messages = self.messages, []
        return decoded(messages, ReplicaIdentity.FULL if self.is_full else ReplicaIdentity.DEFAULT)


def decoded(messages: list[Change], identity: ReplicaIdentity) -> TypedRows:
    parts = [written(message) for message in messages]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(parts)]
    return typed(LAYOUT, relation(identity), b"".join(parts), starts, ends)


def table(rows: Counter[Content]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(LAYOUT.schema.names, row, strict=True)) for row in rows.elements()], LAYOUT.schema
    )


def applied(rows: Counter[Content], changes: pa.Table) -> Counter[Content]:
    after = Counter(rows)
    for *row, diff in zip(*(column.to_pylist() for column in updates.as_changes(changes).columns), strict=True):
        after[tuple(row)] += diff  # type: ignore[index]
    return Counter({row: count for row, count in after.items() if count})


@given(HISTORIES, HISTORIES, st.booleans())
@examples(300)
def test_changes_turn_the_rows_before_into_the_rows_after(
    first: list[tuple[str, tuple[int, str], tuple[int, str], tuple[int | None, str | None], bool]],
    second: list[tuple[str, tuple[int, str], tuple[int, str], tuple[int | None, str | None], bool]],
    is_full: bool,
) -> None:
    model = Model(is_full)
    for operation in first:
        model.apply(*operation)
    model.messages = []
    before = model.content()
    for operation in second:
        model.apply(*operation)
    rows = model.taken()
    if needs_old_rows(rows):
        assert not is_full
        changes = changes_of_keys(rows, KEY, table(before))  # with rows of other keys, as after a collision of hashes
        found = set(zip(*(keys_of(rows, KEY)[name].to_pylist() for name in KEY), strict=True))
        only = Counter({row: count for row, count in before.items() if row[:2] in found})
        assert applied(before, changes_of_keys(rows, KEY, table(only))) == model.content()
    else:
        changes = changes_of_rows(rows)
    assert applied(before, changes) == model.content()


def update(before: tuple[str, Row] | None, new: Row) -> TypedRows:
    return decoded([Change("U", 7, before, new)], ReplicaIdentity.DEFAULT)  # type: ignore[arg-type]


def test_a_toasted_key_is_taken_from_the_old_key() -> None:
    rows = update(("K", (None, "x", None, "1", None)), sent("2", UNCHANGED, "5", "w"))
    changes = changes_of_keys(rows, KEY, table(Counter([(1, "x", 4, "w")])))
    assert applied(Counter([(1, "x", 4, "w")]), changes) == Counter([(2, "x", 5, "w")])


def test_an_update_of_an_unknown_row_is_refused() -> None:
    with pytest.raises(UnknownRow):
        changes_of_keys(update(None, sent("2", "x", "5", "w")), KEY, table(Counter([(1, "x", 4, "w")])))


def test_a_toasted_key_without_the_old_key_is_refused() -> None:
    with pytest.raises(UnknownRow):
        keys_of(update(None, sent("2", UNCHANGED, "5", "w")), KEY)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (sent("one", "x", None, None), r'table "public.t", column "a": invalid input syntax for type integer: "one"'),
        (sent(None, "x", None, None), r'table "public.t": null value in column "a", which was NOT NULL'),
    ],
)
def test_values_that_the_collection_cannot_have_are_refused(new: Row, message: str) -> None:
    with pytest.raises(PgError) as error:
        decoded([Change("I", 7, None, new)], ReplicaIdentity.DEFAULT)
    assert error.value.message == message
