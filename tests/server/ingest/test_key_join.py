"""The join of a step's keys with the rows of its output, on Spark and with hashes that keys share."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from protocol.columnar.hashing import Hashes
from server.ingest import key_join
from server.ingest.key_join import KeyJoin
from server.spark.engine import SparkEngine
from tests.kafka.outputs import JoinEngine

NUMBERS = [None, 0.0, -0.0, 1.5, math.nan, math.inf]
TEXTS = [None, "", "a", "aä"]


class Rows:
    """All rows of a table, whatever the keys."""

    key = ("c0", "c1")

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    async def find(self, keys: pa.Table) -> pa.Table:
        return self._rows


def table(keys: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table(
        {"c0": pa.array([k[0] for k in keys], pa.float64()), "c1": pa.array([k[1] for k in keys], "string")}
    )


def one_hash(table: pa.Table, names: Any) -> Hashes:
    return np.zeros(table.num_rows, np.uint32)


def few_hashes(table: pa.Table, names: Any) -> Hashes:
    """Keys share a hash if their numbers are both NULL or both not."""
    return np.asarray(table["c0"].is_null()).astype(np.uint32)


async def check(engine: Any) -> None:
    """Each pair of a number and a text is in the rows. Half of the pairs are keys."""
    every = list(itertools.product(NUMBERS, TEXTS))
    keys = [key for key in every[::2] if key[0] != 0 or math.copysign(1, key[0]) > 0]
    rows = table(every).append_column("c2", pa.array(range(len(every))))
    found, numbers = await KeyJoin(Rows(rows), engine).find(table(keys))  # type: ignore[arg-type]
    normal = {(str(key[0] + 0.0) if key[0] is not None else None, key[1]): n for n, key in enumerate(keys)}
    expected = {
        (row, normal[key])
        for row, (number, text) in enumerate(every)
        if (key := (str(number + 0.0) if number is not None else None, text)) in normal
    }
    assert sorted(zip(found["c2"].to_pylist(), numbers.tolist(), strict=True)) == sorted(expected)
    assert str(found.to_pylist()) == str(rows.take(found["c2"]).to_pylist())


@pytest.mark.parametrize("hashes", [None, one_hash, few_hashes], ids=["distinct", "one", "few"])
def test_rows_are_found_by_their_keys(monkeypatch: pytest.MonkeyPatch, hashes: Any) -> None:
    if hashes is not None:
        monkeypatch.setattr(key_join, "key_codes", hashes)
    asyncio.run(check(JoinEngine()))


@pytest.mark.parametrize("hashes", [None, one_hash], ids=["distinct", "one"])
async def test_spark_finds_the_same_rows(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, hashes: Any) -> None:
    if hashes is not None:
        monkeypatch.setattr(key_join, "key_codes", hashes)
    await check(engine)
