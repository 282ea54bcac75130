"""Thousands of different statements: what Spark's parser keeps of them is limited."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from protocol.pgwire.errors import PgError
from server.spark.engine import SparkEngine

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(900)]

MEMORY_MB = 512
WARM_UP = 20
STATEMENTS = 150
GROWTH_MB_MAX = 45
"""Measured: 12 MB, and 82 MB without the limit, which is a tenth of the heap."""


class Generator:
    """Queries that differ in their structure: the parser keeps what it learns from sequences of tokens."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self, depth: int = 3) -> str:
        one = self._random.random
        columns = ", ".join(f"{self.value(depth)} AS c{number}" for number in range(self._random.randint(1, 4)))
        text = f"SELECT {'DISTINCT ' if one() < 0.2 else ''}{columns} FROM {self._from(depth)}"
        if one() < 0.6:
            text += f" WHERE {self.condition(depth)}"
        if one() < 0.3:
            text += f" ORDER BY {self._random.choice(['1', '1 DESC', '1 NULLS LAST', 'c0 ASC NULLS FIRST'])}"
        if one() < 0.3:
            text += f" LIMIT {self._random.randint(1, 9)}"
        if depth == 3 and one() < 0.3:
            text = f"WITH q AS ({self.query(1)}), r AS ({self.query(1)}) {text}"
        return text

    def _from(self, depth: int) -> str:
        tables = ["(VALUES (1, 2, 'x'), (3, 4, 'y')) AS t(a, b, s)"]
        if depth > 0 and self._random.random() < 0.4:
            tables.append(f"({self.query(depth - 1)}) AS u")
        kind = self._random.choice(["CROSS JOIN", "LEFT JOIN", "JOIN", "FULL OUTER JOIN"])
        on = "" if kind == "CROSS JOIN" else " ON true"
        return f" {kind} ".join(tables) + (on if len(tables) > 1 else "")

    def value(self, depth: int) -> str:
        leaves = ["t.a", "t.b", "1", "-2", "1.5D", "CAST(NULL AS INT)", "1.25BD", "31"]
        if depth == 0:
            return self._random.choice(leaves)
        a, b, c = (self.value(depth - 1) for _ in range(3))
        return self._random.choice(
            [
                *(f"({a} {operator} {b})" for operator in ("+", "-", "*", "%", "&", "|", "^")),
                f"CASE WHEN {self.condition(depth - 1)} THEN {a} ELSE {b} END",
                f"CASE {a} WHEN {b} THEN {c} END",
                f"coalesce({a}, {b}, {c})",
                f"CAST({a} AS {self._random.choice(['INT', 'BIGINT', 'DOUBLE', 'DECIMAL(20,4)', 'STRING'])}) IS NULL",
                f"nullif({a}, {b})",
                f"greatest({a}, {b})",
                f"-{a}",
                f"if({self.condition(depth - 1)}, {a}, {b})",
                f"size(transform(array({a}, {b}), x -> x + 1))",
                f"named_struct('k', {a}, 'l', {b}).k",
                f"map('k', {a})['k']",
                f"array({a}, {b}, {c})[1]",
                f"length(concat(t.s, 'x', CAST({a} AS STRING)))",
                f"extract(YEAR FROM date_add(DATE'2024-01-01', CAST({a} AS INT)))",
            ]
        ).replace(" IS NULL IS NULL", " IS NULL")

    def condition(self, depth: int) -> str:
        if depth == 0:
            return self._random.choice(["true", "t.a > 1", "t.s = 'x'", "t.b IS NOT NULL"])
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        v, w = self.value(depth - 1), self.value(depth - 1)
        return self._random.choice(
            [
                f"({a} AND {b})",
                f"({a} OR {b})",
                f"NOT ({a})",
                f"{v} IN ({w}, 3)",
                f"{v} NOT BETWEEN {w} AND 9",
                "t.s LIKE 'a%'",
                "t.s RLIKE 'a.*' ",
                f"({v} <=> {w})",
                f"({v} IS DISTINCT FROM {w})",
                f"EXISTS (SELECT 1 FROM (VALUES ({self._random.randint(1, 9)})) AS e(z) WHERE {self.condition(0)})",
            ]
        )


def used_mb(engine: SparkEngine) -> int:
    """What the JVM's heap contains after a garbage collection."""
    gateway: Any = engine._spark._jvm._gateway  # type: ignore[attr-defined]
    runtime = gateway.jvm.java.lang.Runtime.getRuntime()
    for _ in range(2):
        gateway.jvm.java.lang.System.gc()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


@pytest.mark.long
async def test_what_the_parser_keeps_is_limited(tmp_path: Path) -> None:
    """Statements are parsed and analyzed: most of them would fail, which does not matter to the parser."""
    engine = SparkEngine(directory=tmp_path, memory_mb=MEMORY_MB, sessions=1)
    await engine.start()
    generator = Generator(7)
    try:

        async def parse(count: int) -> None:
            for _ in range(count):
                text = " UNION ALL ".join(f"(SELECT count(*) FROM ({generator.query()}))" for _ in range(8))
                with contextlib.suppress(PgError):
                    await engine.run(f"EXPLAIN {text}", {})

        await parse(WARM_UP)
        before, pid = used_mb(engine), engine.jvm_pid
        greatest = 0
        for _ in range(STATEMENTS // 50):
            await parse(50)
            greatest = max(greatest, used_mb(engine))
        print(f"{before} MB after {WARM_UP} statements, at most {greatest} MB during {STATEMENTS} more")
        assert engine.jvm_pid == pid, "Spark has run out of memory"
        assert greatest - before < GROWTH_MB_MAX
    finally:
        await asyncio.shield(engine.close())
