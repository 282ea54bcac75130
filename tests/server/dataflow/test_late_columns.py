"""Late columns: what a statement with row numbers reads and returns, and the result that it completes.

`test_incremental` compares queries computed with late columns, and without them, with the queries from scratch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.plan import late_columns, nodes
from server.dataflow.plan.late_columns import LateForm, LateView
from server.dataflow.plan.lowering import delta_plan
from server.spark.engine import SparkEngine
from server.sql.rewrite import rewritten
from tests.examples import examples
from tests.server.dataflow.histories import History, changes_table, followed, ids, planned

WIDE = pa.table({"c0": [1, 2, None], "c1": ["a", None, ""], "c2": [b"x", b"", None], "c3": [[1], [], None]})
NUMBERED = pa.schema({"x": pa.int64(), "r": pa.int64()})


def late_of(sql: str) -> list[LateForm]:
    plan = planned(sql)
    root = delta_plan(rewritten(plan.relation), plan.inputs)
    statements = [getattr(node, "sql", None) for node in nodes.nodes_of(root)]
    return [s.late for s in statements if isinstance(s, nodes.Statement) and s.late is not None]


def test_a_linear_statement_reads_only_the_columns_of_its_expressions() -> None:
    """t has k, v, s. The version and the diff, 3 and 4, are late, too."""
    (late,) = late_of("SELECT s, k, v + 1 FROM t WHERE v > 0")
    assert late.views == {"d0": LateView((1,), 1)}
    assert late.columns == (("d0", 2), ("d0", 0), (None, 0), ("d0", 3), ("d0", 4))


def test_a_join_reads_keys_versions_and_diffs() -> None:
    """The key of t and u.f, which is as narrow as a row number, and the version and the diff of each side."""
    (late,) = late_of("SELECT t.s, u.f, t.v FROM t JOIN u ON t.k = u.k")
    read = {name: (len(view.read), view.number is not None) for name, view in late.views.items()}
    assert read == {"d0": (3, True), "d1": (4, False)}


@pytest.mark.parametrize("sql", ["SELECT k, count(*) FROM t GROUP BY k", "SELECT DISTINCT k + 1 FROM t"])
def test_columns_of_groups_are_not_late(sql: str) -> None:
    assert all(name is None for late in late_of(sql) for name, at in late.columns if at == 0)


@examples(60)
@given(st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=6), st.integers(1, 4))
def test_late_columns_are_the_rows_with_the_returned_numbers(numbers: list[int | None], split: int) -> None:
    form = LateForm("", {"d0": LateView((0,), 1)}, (("d0", 3), (None, 0), ("d0", 1), ("d0", 2), ("d0", 0)))
    answer = pa.table({"x": [n and -n for n in numbers], "r": numbers}, schema=NUMBERED)
    answer = pa.concat_tables([answer.slice(0, split), answer.slice(split)])
    wide = pa.concat_tables([WIDE.slice(0, 1), WIDE.slice(1)])
    result = form.result(answer, {"d0": wide})
    assert result is not None
    assert [list(row.values()) for row in result.to_pylist()] == [
        expected(n, n and -n, WIDE.to_pylist()) for n in numbers
    ]


def expected(number: int | None, computed: int | None, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    row = dict.fromkeys(WIDE.column_names) if number is None else rows[number]
    return [row["c3"], computed, row["c1"], row["c2"], row["c0"]]


def test_a_statement_reads_the_numbers_of_the_rows() -> None:
    form = LateForm("", {"d0": LateView((2, 0), 0), "d1": LateView((1,), None)}, ())
    read = form.read({"d0": WIDE, "d1": WIDE})
    assert read["d0"].to_pydict() == {"c0": [b"x", b"", None], "c1": [1, 2, None], "c2": [0, 1, 2]}
    assert read["d1"].to_pydict() == {"c0": ["a", None, ""]}


def test_a_result_that_may_exceed_memory_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c0": ["x" * 1_000, "y"]})
    form = LateForm("", {"d0": LateView((), 0)}, (("d0", 0),))
    monkeypatch.setattr(late_columns, "RESULT_BYTES_MAX", 5_000)
    assert form.result(pa.table({"r": [1] * 1_000}), {"d0": rows}) is not None
    assert form.result(pa.table({"r": [0] * 6}), {"d0": rows}) is None


def test_the_complete_statement_computes_large_results(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def changes_of(limit: int) -> tuple[pa.Table, int]:
        monkeypatch.setattr(late_columns, "RESULT_BYTES_MAX", limit)
        t = [((1, 2, "a"), 1), ((1, 3, None), 2), ((2, 4, "c"), 1)]
        u = [((1, 5, 0.5), 1), ((1, 6, None), 1)]
        history = History(
            {ids()[n]: [(Timestamp(2), changes_table(n, lines))] for n, lines in {"t": t, "u": u}.items()}
        )
        computation = followed(
            planned("SELECT t.s, t.v, u.w, u.f FROM t JOIN u ON t.k = u.k"), history, engine, Storage()
        )
        await computation.hydrate(Timestamp(1))
        (changes,) = await computation.advance([Timestamp(2)])
        return changes, sum(operator.record.last.statements for operator in computation.operators)

    async def both() -> None:
        late, statements = await changes_of(late_columns.RESULT_BYTES_MAX)
        complete, more_statements = await changes_of(-1)
        assert late.num_rows == 4
        assert updates.consolidate(pa.concat_tables([late, updates.negate(complete)])).num_rows == 0
        assert (statements, more_statements) == (1, 2)

    asyncio.run(both())
