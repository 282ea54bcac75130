"""The JVM of Spark's driver: its threads, its memory, and how it connects."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from server.spark.embedded import jvm, token_listener
from server.spark.embedded.driver import CLEANING_THREADS
from server.spark.engine import SparkEngine
from server.spark.session_path import Disconnected
from tests.fix_spark import MEMORY_MB

BROADCASTS = 40
ROWS = "SELECT explode(sequence(1, 4000000)) AS n"


async def until(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)  # there is no event for memory that another process returns


def thread_names(pid: int) -> list[str]:
    """Returns the names of the process's threads, which the system truncates."""
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]


def resident_mb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20


@pytest.mark.cluster("embedded")
def test_the_threads_that_remove_broadcasts_are_limited(engine: SparkEngine) -> None:
    """By default, Spark starts a thread per broadcast, up to 100 in each of two pools. A server had 273 threads."""
    gateway: Any = engine._spark._jvm._gateway  # type: ignore[attr-defined]
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    for number in range(BROADCASTS):
        context.broadcast(str(number)).destroy(True)  # blocks until the broadcast is removed
    assert engine.jvm_pid is not None
    names = thread_names(engine.jvm_pid)
    found = [name for name in names if name.startswith("block-manager-")]
    assert found, " ".join(names)
    assert len(found) <= 2 * CLEANING_THREADS


@pytest.mark.cluster("embedded")
@pytest.mark.long
async def test_the_classes_of_many_statements_are_compiled_once(engine: SparkEngine) -> None:
    gateway: Any = engine._spark._jvm._gateway  # type: ignore[attr-defined]
    compilations = gateway.jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    views = {"classes": pa.table({"c0": [1, 2], "c1": [3, 4]})}
    counts = []
    for _ in range(3):  # a statement is planned twice, and then prepared
        for number in range(150):
            await engine.run(f"SELECT c0 + {number} AS a FROM classes WHERE c1 > {number}", views)
        counts.append(compilations.getCount())
    assert counts[0] < counts[1] == counts[2]


@pytest.mark.cluster("embedded")
async def test_large_results_of_tasks_do_not_go_through_a_socket(engine: SparkEngine) -> None:
    """Spark starts threads with the name of its shuffle client when it fetches the first result from itself."""
    got = await engine.run("SELECT id % 7 AS k, id FROM range(1000000) DISTRIBUTE BY k", {})
    assert got.nbytes > 8 << 20
    assert engine.jvm_pid is not None
    names = thread_names(engine.jvm_pid)
    assert not [name for name in names if name.startswith("shuffle-client")]


@pytest.mark.crash
async def test_memory_of_a_large_query_is_returned_when_spark_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "IDLE_COLLECTION_S", 1)
    engine = SparkEngine(directory=tmp_path, memory_mb=MEMORY_MB, sessions=1)
    await engine.start()
    try:
        pid = engine.jvm_pid
        assert pid is not None
        await engine.run("SELECT 1", {})
        small = resident_mb(pid)
        rows = await engine.run(ROWS, {})
        assert rows.num_rows == 4_000_000
        large = resident_mb(pid)
        assert large > small + 100, "the query was too small to show anything"
        await until(lambda: resident_mb(pid) < (small + large) // 2)
        gateway: Any = engine._spark._jvm._gateway  # type: ignore[attr-defined]
        assert gateway.jvm.java.lang.Runtime.getRuntime().totalMemory() >> 20 >= jvm.HEAP_MIN_MB
    finally:
        await engine.close()


def test_another_client_that_connects_first_neither_delays_nor_replaces_the_jvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any local user can connect to the port on which a session waits for the JVM, and send nothing or any bytes."""
    token = b"0123456789abcdef"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        silent, wrong = (socket.create_connection(address) for _ in range(2))
        wrong.sendall(b"x" * len(token))
        right = socket.create_connection(address)

        def tell() -> None:
            right.sendall(token[:5])
            right.sendall(token[5:] + b"more")

        thread = threading.Thread(target=tell)
        thread.start()
        accepted = token_listener.accept(listener, token)
        thread.join()
        accepted.setblocking(True)
        assert accepted.getpeername() == right.getsockname()
        assert accepted.recv(4) == b"more"
        for stranger in (silent, wrong):
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
        monkeypatch.setattr(token_listener, "CONNECT_TIMEOUT_S", 0.05)
        with pytest.raises(Disconnected, match="did not connect within"):
            token_listener.accept(listener, token)
        for each in (silent, wrong, right, accepted):
            each.close()
