"""A table in a notebook that shows the present contents of a query."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable
from html import escape
from typing import Any

from tidewire.batches import AnyBatch, Progress, Row, Snapshot


class LiveTable:
    """Keeps the rows of a subscription, and shows at most `max_rows` of them as an HTML table.

        table = LiveTable()
        task = asyncio.create_task(table.follow(aio.subscribe(dsn, "readings")))

    It keeps all rows of the query in memory. Its display changes at most every `every_s` seconds.
    """

    def __init__(self, *, max_rows: int = 50, every_s: float = 0.1) -> None:
        self._max_rows = max_rows
        self._every_s = every_s
        self._columns: tuple[str, ...] = ()
        self._rows: dict[str, tuple[Row, int]] = {}  # with multiplicities, by the text of the row or of its key
        self._progress: int | None = None

    def __len__(self) -> int:
        """The number of rows of the query."""
        return sum(count for _, count in self._rows.values())

    def apply(self, batch: AnyBatch[Any]) -> None:
        """Applies the changes of a batch, in the order of the subscription."""
        self._progress = batch.progress
        if isinstance(batch, Progress):
            return
        if isinstance(batch, Snapshot):
            self._rows.clear()
        self._columns = batch.columns
        # The text of a row identifies it: values may be neither hashable nor equal to themselves (NaN).
        for row, diff in batch._raw or ():
            text = repr(row)
            count = self._rows.get(text, (row, 0))[1] + diff
            if count:
                self._rows[text] = row, count
            else:
                del self._rows[text]
        for change in batch.key_changes:
            if change.after is None:
                self._rows.pop(repr(change.key), None)
            else:
                self._rows[repr(change.key)] = (*change.key, *change.after), 1

    async def follow(self, batches: AsyncIterable[AnyBatch[Any]]) -> None:
        """Applies all batches until the subscription ends or the task is cancelled.

        In IPython it also displays the table below the cell, and updates it.
        """
        handle = _display(self)
        changed, shown_s = True, float("-inf")
        try:
            async for batch in batches:
                self.apply(batch)
                changed = changed or not isinstance(batch, Progress)
                if handle is not None and changed and time.monotonic() - shown_s >= self._every_s:
                    handle.update(self)
                    changed, shown_s = False, time.monotonic()
        finally:
            if handle is not None and changed:
                handle.update(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self._columns)
        body: list[str] = []
        for row, count in self._rows.values():
            line = f"<tr>{''.join(map(_cell, row))}</tr>"
            body += [line] * min(count, self._max_rows - len(body))
            if len(body) >= self._max_rows:
                break
        caption = f"{len(self)} rows" if len(body) == len(self) else f"{len(body)} of {len(self)} rows"
        at = "" if self._progress is None else f", before {self._progress}"
        top = f"<table><caption>{caption}{at}</caption><thead><tr>{head}</tr></thead>"
        return f"{top}<tbody>{''.join(body)}</tbody></table>"


def _cell(value: object) -> str:
    return "<td><i>NULL</i></td>" if value is None else f"<td>{escape(str(value))}</td>"


def _display(table: LiveTable) -> Any:
    """Displays the table and returns the handle to update it; None outside of IPython."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return None if get_ipython() is None else display(table, display_id=True)
