"""testdrive: runs test scripts against a PostgreSQL-compatible server, as an external client.

There are two kinds of scripts. A `.td` file contains SQL statements with their expected rows or errors, and `$ actions`
between them. A statement is retried until its answer matches or its timeout expires. A `.pt` file contains messages of
the PostgreSQL protocol and the exact messages that the server must answer.

Modules for a `.td` file:
1. `parser`: parses the text to commands with line numbers and byte positions; does no IO. `escapes`: bytes in scripts.
2. `script`: the state of a running file: options, variables, regex, timeout, connections.
3. `runner`: runs the commands in order, with retries; calls `actions` for `$`, and `client` for SQL.
4. `client`: a libpq connection with the extended protocol and binary results, which `values` prints.
5. `kafka`: clients of brokers and of a schema registry, and the formats of messages, for the Kafka actions.
A `.pt` file is run by `pgtest`, over the protocol client in `wire`. Both report a `report.Failure`.

From Python: `run_file(path, Options(url=..., reset=False))` returns the list of failures, empty if the file passed.
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
    """Runs one script. The suffix determines its kind: `.td` or `.pt`; KeyError for any other.

    Returns the failures. The first failure ends a file, so the list has at most one element.
    """
    failure = RUNNERS[path.suffix](path, options)
    return [] if failure is None else [failure]
