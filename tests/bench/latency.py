"""The time from a commit's acknowledgement to the row of a SUBSCRIBE to the table, which does not use Spark."""

from __future__ import annotations

import statistics
import threading
import time

import psycopg

from tests.bench.servers import Line, Servers

COMMITS = 300


def run(servers: Servers) -> list[Line]:
    dsn = servers.tidewire.dsn
    sent: dict[int, float] = {}
    received: dict[int, float] = {}
    acknowledged: dict[int, float] = {}
    with psycopg.connect(dsn, autocommit=True) as writer, psycopg.connect(dsn, autocommit=True) as reader:
        writer.execute("CREATE TABLE latency (n int)")
        ready = threading.Event()

        def follow() -> None:
            for _, progressed, _, n in reader.cursor().stream("SUBSCRIBE latency WITH (PROGRESS)"):
                if progressed:
                    ready.set()
                else:
                    received[n] = time.perf_counter()
                    if n == COMMITS:
                        return

        follower = threading.Thread(target=follow)
        follower.start()
        ready.wait()
        for n in range(1, COMMITS + 1):
            sent[n] = time.perf_counter()
            writer.execute("INSERT INTO latency VALUES (%s)", (n,))
            acknowledged[n] = time.perf_counter()
        follower.join()
    delays = sorted((received[n] - sent[n]) * 1e3 for n in sent)
    commits = statistics.median((acknowledged[n] - sent[n]) * 1e3 for n in sent)
    p50, p99 = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
    return [
        Line(
            "INSERT sent to subscriber has row, p50 (p99)",
            f"{p50:.1f} ms ({p99:.1f})",
            f"{commits:.1f} ms acknowledged",
            f"{p50 / commits:.2f} x",
            "p50 at most 10 ms",
        )
    ]
