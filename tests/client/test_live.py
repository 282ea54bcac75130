"""A table in a notebook, with a substitute for IPython and without it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from tests.client.conftest import Execute
from tests.client.test_reader import NAMES, feed, progress
from tests.polling import HANG_S
from tidewire import LiveTable, Query, Reader, aio


def batches_of(reader: Reader[Any], *rows: tuple[Any, ...]) -> list[Any]:
    reader.statement()
    return feed(reader, *rows, names=NAMES)


def lines(table: LiveTable) -> list[str]:
    return table._repr_html_().partition("<tbody>")[2].removesuffix("</tbody></table>").split("</tr>")[:-1]


def test_it_shows_the_contents_and_escapes_them() -> None:
    table = LiveTable()
    assert len(table) == 0
    nan, weird = float("nan"), {"<b>": ["&"]}
    rows = [(5, False, 1, nan, weird), (5, False, 2, None, '<script>"'), (6, True, None, None, None)]
    for batch in batches_of(Reader(Query("t")), progress(5), *rows):
        table.apply(batch)
    assert lines(table) == [
        "<tr><td>nan</td><td>{&#x27;&lt;b&gt;&#x27;: [&#x27;&amp;&#x27;]}</td>",
        *["<tr><td><i>NULL</i></td><td>&lt;script&gt;&quot;</td>"] * 2,
    ]
    assert "<th>k</th><th>v</th>" in table._repr_html_()
    assert "<caption>3 rows, before 6</caption>" in table._repr_html_()


def test_changes_are_applied_and_the_number_of_lines_is_bounded() -> None:
    table = LiveTable(max_rows=2)
    stream = [progress(5), (5, False, 3, 1, "a"), progress(6)]
    stream += [(6, False, -3, 1, "a"), (6, False, 1, 2, float("nan")), progress(7)]
    stream += [(7, False, -1, 2, float("nan")), (7, False, 1, 3, "b"), (7, False, 2, 4, "c"), progress(8)]
    counts = []
    for batch in batches_of(Reader(Query("t")), *stream):
        table.apply(batch)
        counts.append(len(table))
    assert counts[0] == 3
    assert counts[-1] == 3
    assert 1 in counts
    assert lines(table) == ["<tr><td>3</td><td>b</td>", "<tr><td>4</td><td>c</td>"]
    assert "2 of 3 rows" in table._repr_html_()


def test_an_envelope_is_shown_by_key() -> None:
    table = LiveTable()
    stream = [progress(5), (5, False, "upsert", 1, "a"), (5, False, "upsert", 2, "b"), progress(6)]
    stream += [(6, False, "upsert", 1, "c"), (6, False, "delete", 2, None), progress(7)]
    for batch in batches_of(Reader(Query("t", ("k",), "upsert")), *stream):
        table.apply(batch)
    assert lines(table) == ["<tr><td>1</td><td>c</td>"]


class FakeIPython:
    """A substitute for the module, whose display handle records what was shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, running: bool) -> None:
        self.shown: list[str] = []
        package: Any = ModuleType("IPython")
        module: Any = ModuleType("IPython.display")
        package.get_ipython = lambda: self if running else None
        module.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", module)

    def display(self, table: LiveTable, *, display_id: bool) -> FakeIPython:
        assert display_id
        self.update(table)
        return self

    def update(self, table: LiveTable) -> None:
        self.shown.append(table._repr_html_())


async def each(batches: list[Any]) -> AsyncIterator[Any]:
    for batch in batches:
        yield batch


STREAM = [progress(5), (5, False, 1, 1, "a"), (6, False, 1, 2, "b"), (7, False, 1, 3, "c"), progress(8)]


async def test_the_display_is_updated_at_most_once_per_interval_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeIPython(monkeypatch, running=True)
    await LiveTable(every_s=60).follow(each(batches_of(Reader(Query("t")), *STREAM)))
    assert [html.count("<td>") // 2 for html in fake.shown] == [0, 1, 3]


@pytest.mark.parametrize("installed", [True, False])
async def test_outside_of_a_notebook_the_table_is_kept(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed:
        fake = FakeIPython(monkeypatch, running=False)
    else:
        monkeypatch.setitem(sys.modules, "IPython", None)
    table = LiveTable()
    await table.follow(each(batches_of(Reader(Query("t")), *STREAM)))
    assert len(table) == 3
    assert not installed or not fake.shown


@pytest.mark.usefixtures("released")
async def test_it_follows_a_subscription_until_it_is_cancelled(dsn: str, table: str, execute: Execute) -> None:
    arrived = asyncio.Event()

    class Watched(LiveTable):
        def apply(self, batch: Any) -> None:
            super().apply(batch)
            if len(self) == 2:
                arrived.set()

    live = Watched()
    task = asyncio.create_task(live.follow(aio.subscribe(dsn, table)))
    await asyncio.to_thread(execute, "INSERT INTO t VALUES (1, 10), (2, 20)")
    await asyncio.wait_for(arrived.wait(), HANG_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lines(live)[0].startswith("<tr><td>")
