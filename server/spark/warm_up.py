"""Synthetic statements over small tables, to make the JVM compile the code that such statements use.

Each statement has new tables. Half of them have a unique text, so that the code that plans new statements is compiled
too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def synthetic_statements(rounds: int) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """Yields `rounds` pairs of SQL text and its tables."""
    count = 100
    for number in range(rounds):
        values = np.arange(count, dtype=np.int64) + number
        table = pa.table(
            {
                "c0": values,
                "c1": values.astype(np.int32) % 7,
                "c2": pc.cast(pa.array(values), pa.string()),
                "c3": values / 3,
                "c4": pc.cast(pa.array(values), pa.timestamp("us")),
                "c5": pc.cast(pc.cast(pa.array(values), pa.decimal128(19, 0)), pa.decimal128(38, 18)),
                "diff": np.ones(count, dtype=np.int64),
            }
        )
        sql = _TEXTS[number % len(_TEXTS)]
        again = number // len(_TEXTS) % 2
        yield sql if again else f"{sql} /* {number} */", {"warm_l": table, "warm_r": table.slice(0, 50)}


_TEXTS = (
    "SELECT c0, upper(c2), c3 * 2, CAST(c0 AS STRING), diff FROM warm_l WHERE c1 <> 3 AND c2 LIKE '%1%'",
    "SELECT /*+ COALESCE(1) */ c1, sum(diff), sum(c3 * diff), min(c2), max(c4), sum(c5) FROM warm_l GROUP BY c1",
    "SELECT c1, count(*) AS n, avg(c3) AS a FROM warm_l GROUP BY c1 ORDER BY c1 LIMIT 5",
    "SELECT l.c0, r.c2, l.diff * r.diff AS diff FROM warm_l l JOIN warm_r r ON l.c0 = r.c0 WHERE l.c1 IN (1, 2, 3)",
    "SELECT l.c0, r.c2 FROM warm_l l LEFT JOIN warm_r r ON l.c1 = r.c1 AND l.c0 < r.c0",
    "SELECT DISTINCT c1, date_trunc('day', c4) AS d FROM warm_l UNION ALL SELECT c1, c4 FROM warm_r",
)
