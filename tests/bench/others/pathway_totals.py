"""Pathway: sum and count by key. From the commit of the rows to the call that reports the end of their time.

It runs in an environment of its own, which has `pathway` and none of ours.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pathway as pw
import pyarrow.parquet as parquet


class Row(pw.Schema):
    k: int = pw.column_definition(primary_key=True)
    v: int = pw.column_definition(primary_key=True)


class Rows(pw.io.python.ConnectorSubject):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.changed = False
        self.out = threading.Event()

    def run(self) -> None:
        self._commit(self._base)
        print("ready", flush=True)
        for line in sys.stdin:
            print(self._commit(line.strip()), flush=True)

    def _commit(self, file: str) -> float:
        table = parquet.read_table(file)
        changes = list(zip(*(table[name].to_pylist() for name in ("k", "v", "diff")), strict=True))
        self.out.clear()
        begun = time.perf_counter()
        for k, v, diff in changes:
            if diff > 0:
                self.next(k=k, v=v)
            else:
                self.delete(k=k, v=v)
        self.commit()
        self.out.wait()
        return time.perf_counter() - begun

    def on_change(self, **change: Any) -> None:
        self.changed = True

    def on_time_end(self, time: int) -> None:
        if self.changed:
            self.changed = False
            self.out.set()


def main(base: str) -> None:
    rows = Rows(base)
    table = pw.io.python.read(rows, schema=Row, autocommit_duration_ms=None)
    totals = table.groupby(table.k).reduce(table.k, total=pw.reducers.sum(table.v), rows=pw.reducers.count())
    pw.io.subscribe(totals, on_change=rows.on_change, on_time_end=rows.on_time_end)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main(sys.argv[1])
