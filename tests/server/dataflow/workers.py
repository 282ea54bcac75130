"""An engine for tests that runs the tasks on arrangement files in this process, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from server.dataflow.arrangements.run_files import answers


class Workers:
    """An `Engine` for one kind of statement. `fault` is called before the tasks run."""

    def __init__(self) -> None:
        self.statements = 0
        self.fault: Any = None

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        assert patient
        self.statements += 1
        if self.fault is not None:
            self.fault()
        tasks = views["tasks"]
        assert sql.count("UNION ALL") + 1 == len(set(tasks["branch"].to_pylist()))
        return pa.table({"number": tasks["number"], "answer": answers(tasks["task"].combine_chunks())})
