"""`make demo-postgres`: live queries over a PostgreSQL database that pgbench writes to.

Starts a PostgreSQL and a Tidewire, creates a source over pgbench's tables and a materialized view of the balances of
each branch, and prints the view as it changes. When pgbench has ended, it compares the view with PostgreSQL: the exit
code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from local_postgres import LocalPostgres
from local_server import LocalServer

CLIENTS = 4
CATCH_UP_S = 60.0

QUERY = """
SELECT a.bid, sum(a.abalance) AS accounts,
       (SELECT coalesce(sum(h.delta), 0) FROM pgbench_history h WHERE h.bid = a.bid) AS history
FROM pgbench_accounts a GROUP BY a.bid
"""

Balances = dict[int, tuple[int, int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="how long pgbench writes [default: 20]")
    parser.add_argument("--scale", type=int, default=3, help="branches, with 100,000 accounts each [default: 3]")
    arguments = parser.parse_args()
    postgres = LocalPostgres()
    try:
        with tempfile.TemporaryDirectory(prefix="tidewire-demo-") as directory:
            server = LocalServer(Path(directory) / "data")
            try:
                server.wait_until_listening()
                return _run(postgres, server, arguments.seconds, arguments.scale)
            finally:
                server.stop()
    finally:
        postgres.stop()


def _run(postgres: LocalPostgres, server: LocalServer, seconds: int, scale: int) -> int:
    postgres.run("pgbench", "-i", "-q", "-s", str(scale), postgres.url)
    with psycopg.connect(postgres.url, autocommit=True) as upstream, psycopg.connect(server.url) as tidewire:
        tidewire.autocommit = True
        upstream.execute("CREATE PUBLICATION bench FOR ALL TABLES")
        tidewire.execute(
            f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {postgres.port}, DATABASE postgres)"
        )
        tidewire.execute("CREATE SOURCE bench FROM POSTGRES CONNECTION pg (PUBLICATION 'bench') FOR ALL TABLES")
        tidewire.execute(f"CREATE MATERIALIZED VIEW balances AS {QUERY}")
        print(f"{scale * 100_000:,} accounts; pgbench writes for {seconds} s with {CLIENTS} clients", flush=True)
        bench = postgres.started("pgbench", "-n", "-c", str(CLIENTS), "-T", str(seconds), postgres.url)
        try:
            return _follow(upstream, tidewire, bench)
        finally:
            bench.terminate()
            bench.wait()


def _follow(upstream: psycopg.Connection, tidewire: psycopg.Connection, bench: subprocess.Popen[bytes]) -> int:
    """Prints the view while pgbench runs; then waits until it is equal to PostgreSQL's result."""
    balances: Balances = {}
    expected: Balances | None = None
    deadline = 0.0
    with tidewire.transaction():
        tidewire.execute("DECLARE c CURSOR FOR SUBSCRIBE balances")
        while True:
            if _applied(balances, tidewire.execute("FETCH ALL c WITH (TIMEOUT '1s')").fetchall()):
                print("  ".join(f"branch {bid}: {sums[0]:>10,}" for bid, sums in sorted(balances.items())), flush=True)
            if expected is None and bench.poll() is not None:
                expected = {int(bid): (int(a), int(h)) for bid, a, h in upstream.execute(QUERY).fetchall()}
                deadline = monotonic() + CATCH_UP_S
            if expected is not None and balances == expected:
                break
            if expected is not None and monotonic() > deadline:
                print(f"The view differs from PostgreSQL:\n{balances}\n{expected}", file=sys.stderr)
                return 1
    ((count,),) = upstream.execute("SELECT count(*) FROM pgbench_history").fetchall()
    print(f"{count:,} transactions. The view is equal to PostgreSQL's result.")
    return 0


def _applied(balances: Balances, rows: list[tuple[Any, ...]]) -> bool:
    """Applies the rows of a subscription, retractions first. Returns whether there were any."""
    for _, diff, bid, accounts, history in sorted(rows, key=lambda row: (row[0], row[1])):
        if int(diff) < 0:
            balances.pop(int(bid), None)
        else:
            balances[int(bid)] = int(accounts), int(history)
    return bool(rows)


if __name__ == "__main__":
    sys.exit(main())
