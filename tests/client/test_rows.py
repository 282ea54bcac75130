"""Rows of the types that a program declares: which columns they need, and what a type checker knows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import mypy.api
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

import tidewire
from tests.client.conftest import Execute
from tests.client.test_reader import NAMES, feed, progress
from tests.client.test_sync import changed
from tidewire import Change, Query, Reader, RowTypeMismatch, Snapshot, aio
from tidewire.rows import row_maker

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Pair:
    k: int
    v: int


@dataclass(kw_only=True)
class PairWithDefaults:
    v: int
    k: int
    note: str = "none"
    notes: list[str] = field(default_factory=list)
    total: int = field(init=False, default=0)


class PairTuple(NamedTuple):
    v: int
    k: int
    note: str = "none"


class PairModel(BaseModel):
    key: int = Field(alias="k")
    v: int


@pytest.mark.parametrize(
    ("row_type", "row"),
    [
        (Pair, Pair(1, 10)),
        (PairWithDefaults, PairWithDefaults(v=10, k=1)),
        (PairTuple, PairTuple(10, 1)),
        (PairModel, PairModel(k=1, v=10)),
    ],
)
def test_columns_are_matched_by_name(row_type: type[Any], row: object) -> None:
    assert row_maker(row_type, ["k", "v"])((1, 10)) == row


@pytest.mark.parametrize("row_type", [Pair, PairWithDefaults, PairTuple, PairModel])
def test_missing_and_surplus_columns_are_named(row_type: type[Any]) -> None:
    with pytest.raises(RowTypeMismatch) as raised:
        row_maker(row_type, ["k", "w", "x"])
    assert str(raised.value) == (
        f"the columns of the query do not match {row_type.__name__}: missing columns: v; surplus columns: w, x"
    )
    assert (raised.value.missing, raised.value.surplus) == (("v",), ("w", "x"))
    with pytest.raises(RowTypeMismatch, match="repeated columns: k"):
        row_maker(row_type, ["k", "k", "v"])


def test_models_may_have_aliases_and_allow_further_columns() -> None:
    class Model(BaseModel):
        model_config = ConfigDict(extra="allow", validate_by_name=True)
        key: int = Field(validation_alias=AliasChoices("k", "kk"))

    for columns in (["k", "w"], ["kk", "w"], ["key", "w"]):
        made = row_maker(Model, columns)((1, 2))
        assert (made.key, made.model_extra) == (1, {"w": 2})


def test_other_types_are_refused_at_once() -> None:
    wrong: Callable[..., Any] = Reader
    for row_type in (int, tuple, dict, Pair(1, 2)):
        with pytest.raises(TypeError, match="must be a dataclass, a NamedTuple or a pydantic model"):
            wrong(Query("t"), row_type=row_type)
    with pytest.raises(ValueError, match="an envelope"):
        Reader(Query("t", ("k",), "upsert"), row_type=Pair)


def test_a_row_that_a_model_refuses_is_not_lost() -> None:
    reader = Reader(Query("t", ("k",)), row_type=PairModel)
    reader.statement()
    feed(reader, progress(5), names=NAMES)
    reader.receive((5, False, 1, 1, "no number"))
    reader.receive(progress(6))
    for _ in range(2):
        with pytest.raises(ValidationError):
            reader.next_batch()
    assert reader.token is None


@pytest.mark.usefixtures("released")
def test_a_subscription_returns_rows_of_the_type(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10)")
    with tidewire.subscribe(dsn, table, row_type=Pair, key=("k",)) as batches:
        snapshot = next(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.changes == [Change(Pair(1, 10), 1)]
        assert snapshot.rows == {(1,): (10,)}
        execute("UPDATE t SET v = 11")
        (update,) = changed(batches, 1)
        assert sorted(update.changes, key=lambda change: change.diff) == [
            Change(Pair(1, 10), -1),
            Change(Pair(1, 11), 1),
        ]


@pytest.mark.usefixtures("released")
async def test_an_asynchronous_subscription_returns_rows_of_the_type(dsn: str, execute: Execute) -> None:
    class Reading(BaseModel):
        sensor: str
        celsius: Decimal

    execute("CREATE TABLE r (celsius numeric(5,1), sensor text)")
    execute("INSERT INTO r VALUES (1.5, 'roof')")
    async with aio.subscribe(dsn, "r", row_type=Reading) as batches:
        snapshot = await anext(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.changes == [Change(Reading(sensor="roof", celsius=Decimal("1.5")), 1)]


@pytest.mark.usefixtures("released")
async def test_a_type_that_does_not_match_is_reported_before_the_first_batch(
    dsn: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(NamedTuple):
        k: int
        w: int

    for _ in range(2):
        with pytest.raises(RowTypeMismatch, match="missing columns: w; surplus columns: v"):
            next(tidewire.subscribe(dsn, table, row_type=Other))
        with pytest.raises(RowTypeMismatch, match="missing columns: w; surplus columns: v"):
            await anext(aio.subscribe(dsn, table, row_type=Other))
    assert not caplog.records, "it was tried again"


TYPED = """
from dataclasses import dataclass

import tidewire
from tidewire import AnyBatch, Snapshot, Subscription, Update, aio


@dataclass
class Departure:
    station: str
    delay: int


def on_update(update: Update[Departure]) -> None:
    reveal_type(update.changes[0].row.delay)


def plain(subscription: Subscription, batch: AnyBatch) -> None: ...


with tidewire.subscribe("", "departures", row_type=Departure) as batches:
    for batch in batches:
        if isinstance(batch, (Snapshot, Update)):
            for change in batch.changes:
                reveal_type(change.row.delay)
tidewire.subscribe("", "departures", row_type=Departure).run(on_update=on_update)
untyped = tidewire.subscribe("", "departures")
reveal_type(untyped)
plain(untyped, next(untyped))


async def main() -> None:
    async for batch in aio.subscribe("", "departures", row_type=Departure):
        if isinstance(batch, Update):
            reveal_type(batch.changes[0].row)
            batch.changes[0].row.dely
"""


@pytest.mark.long
def test_a_type_checker_knows_the_type_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    output, errors, _ = mypy.api.run(
        ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--no-pretty", str(tmp_path / "typed.py")]
    )
    assert not errors
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in output.splitlines() if "Revealed" in line]
    assert revealed == [
        "int",
        "int",
        "tidewire.sync.Subscription[tuple[Any, ...]]",
        "typed.Departure",
    ]
    found = [line for line in output.splitlines() if "error" in line and "typed.py" in line]
    assert len(found) == 1, output
    assert '"Departure" has no attribute "dely"' in found[0]
