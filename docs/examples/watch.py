"""Prints every change of a query. When restarted, it resumes after the last change that it recorded.

    python docs/examples/watch.py DSN QUERY TOKEN-FILE

The token is written after the changes have been printed. After a crash in between, changes may be printed twice, but
none is lost.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import tidewire


def main(dsn: str, query: str, place: Path) -> None:
    token = place.read_text() if place.exists() else None
    with tidewire.subscribe(dsn, query, token=token, on_too_old="reset") as batches:
        for batch in batches:
            if not isinstance(batch, tidewire.Progress):
                if isinstance(batch, tidewire.Snapshot):
                    print("all over again:" if batch.reset else "there is:")
                for row, diff in batch.changes:
                    print(f"{diff:+d}", *row, flush=True)
            new = place.with_suffix(".new")
            new.write_text(str(batch.token))
            os.replace(new, place)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
