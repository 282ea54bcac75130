"""testdrive: scripts that speak to a server as a client from outside would, and say what must come back.

Two kinds of script. A `.td` file holds SQL statements with the rows or the error that they give, and `$ actions`
between them; a statement is tried again until its answer matches or its time is over. A `.pt` file holds messages of
the PostgreSQL protocol and the exact messages that answer them. Either runs against anything that speaks PostgreSQL.

The way of a `.td` file, by module:
1. `parser`: text to commands, pure, with line numbers and byte positions.
2. `script`: what a running file carries along: options, variables, regex, timeout, connections.
3. `runner`: runs the commands in turn, with retries; calls `actions` for `$`, and `client` for SQL.
4. `client`: one libpq connection, extended protocol, binary results, which `values` prints.
A `.pt` file goes through `pgtest`, over the protocol client in `wire`. Both report a `report.Failure`.

From Python: `run_file(path, Options(url=..., reset=False))` gives the list of failures, empty when the file passed.
"""

from __future__ import annotations

from pathlib import Path

from testdrive.pgtest import run_pt
from testdrive.report import Failure
from testdrive.runner import run_td
from testdrive.script import Options

__all__ = ["RUNNERS", "Failure", "Options", "run_file"]

RUNNERS = {".td": run_td, ".pt": run_pt}


def run_file(path: Path, options: Options) -> list[Failure]:
    """Run one script; the suffix (`.td` or `.pt`, else KeyError) tells its kind.

    The first failure ends a file, so the list has at most one element; it is empty when the file passed.
    """
    failure = RUNNERS[path.suffix](path, options)
    return [] if failure is None else [failure]
