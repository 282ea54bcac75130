"""The README's session, the Python code of the documentation, and the example programs, executed as printed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from tests.client.conftest import Execute
from tests.docs.pages import examples, executes, replayed
from tests.polling import HANG_S

pytestmark = pytest.mark.usefixtures("released")

ROOT = Path(__file__).parents[2]
DSN = "postgresql://materialize@127.0.0.1:6875/materialize"


@executes("README.md", "sql", "python")
def test_the_session_of_the_readme_runs(dsn: str, execute: Execute) -> None:
    (session,) = examples("README.md", "sql")
    *statements, follow = filter(None, map(str.strip, session.split(";\n")))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        assert cursor.fetchall() == [("cellar", 1, Decimal("12.0")), ("roof", 1, Decimal("31.5"))]
        with pytest.raises(psycopg.errors.QueryCanceled), connection.cursor().copy(follow) as copy:
            for line in copy:
                if bytes(line).endswith(b"\tf\t1\troof\t1\t31.5\n"):
                    execute(f"SELECT pg_cancel_backend({connection.info.backend_pid})")
    (block,) = examples("README.md", "python")
    with running(block, dsn) as lines:
        assert any(line.endswith("(1, ['roof', 1, Decimal('31.5')])\n") for line in lines)
        execute("INSERT INTO readings VALUES ('roof', 40)")
        assert any(line.endswith("(1, ['roof', 2, Decimal('40.0')])\n") for line in lines)


@executes("client.md", "python")
def test_the_page_on_the_client_library_runs(
    dsn: str, execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute("CREATE TABLE readings (sensor text NOT NULL, celsius numeric(5,1))")
    execute("INSERT INTO readings VALUES ('roof', 31.5), ('cellar', 12.0)")
    monkeypatch.chdir(tmp_path)
    blocks = examples("client.md", "python")
    # Rows that another client writes while the block runs.
    writes = {'print("now:': "('attic', 20.0)", "on_update": "('door', 5.0)", "sqlite3": "('yard', 1.5)"}
    names: dict[str, object] = {"__name__": "page"}
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # dataclasses look up their module
    for number, block in enumerate(blocks):
        write = next((rows for text, rows in writes.items() if text in block), None)
        timer = threading.Timer(0.4, execute, [f"INSERT INTO readings VALUES {write}"]) if write else None
        if timer is not None:
            timer.start()
        exec(compile(block.replace(DSN, dsn), f"client.md, block {number}", "exec"), names)
        if timer is not None:
            timer.join()
    names["store"].close()  # type: ignore[attr-defined]
    printed = capsys.readouterr().out
    assert "at first: {('roof',): (Decimal('31.5'),), ('cellar',): (Decimal('12.0'),)}" in printed.replace(
        "{('cellar',): (Decimal('12.0'),), ('roof',): (Decimal('31.5'),)}",
        "{('roof',): (Decimal('31.5'),), ('cellar',): (Decimal('12.0'),)}",
    )
    assert "highest: 31.5\n" in printed
    assert "3 sensors\nchanged: [Change(row=('door', Decimal('5.0')), diff=1)]\n" in printed
    assert "[('attic', 20), ('cellar', 12), ('door', 5), ('roof', 31.5), ('yard', 1.5)]" in printed


@executes("subscribe.md", "python")
def test_the_page_on_subscribe_runs(dsn: str, execute: Execute, capsys: pytest.CaptureFixture[str]) -> None:
    execute("CREATE TABLE kv (key int, value int)")
    execute("INSERT INTO kv VALUES (1, 2), (2, 4)")
    names: dict[str, object] = {"__name__": "page", "dsn": dsn}
    for number, block in enumerate(examples("subscribe.md", "python")):
        exec(compile(block, f"subscribe.md, block {number}", "exec"), names)
    direct, *copied, cursor = capsys.readouterr().out.splitlines()
    assert direct == "1 2 4"
    assert copied == ["upsert 1 2", "upsert 2 4"]
    assert cursor.endswith("mz_diff=1 key=2 value=4>")


@executes("clients.md", "python")
def test_the_page_on_clients_runs(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE readings (sensor text NOT NULL, celsius numeric(5,1))")
    execute("INSERT INTO readings VALUES ('roof', 31.5)")
    psycopg_block, asyncpg_block = examples("clients.md", "python")
    with running(psycopg_block, dsn) as lines:
        assert any(line.endswith("{('roof', Decimal('31.5')): 1}\n") for line in lines)
        execute("UPDATE readings SET celsius = 30.0")
        assert any(line.endswith("{('roof', Decimal('30.0')): 1}\n") for line in lines)
    with running(asyncpg_block, dsn) as lines:
        assert any(line.endswith("\tf\t1\troof\t30.0\n") for line in lines)
        execute("DELETE FROM readings")
        assert any(line.endswith("\tf\t-1\troof\t30.0\n") for line in lines)


@executes("quick-start.md", "python", "sql")
def test_the_quick_start_runs(dsn: str, execute: Execute) -> None:
    define, *_ = examples("quick-start.md", "psql")
    replayed(f"```psql\n{define}```\n", dsn)
    (block,) = examples("quick-start.md", "python")
    with running(block, dsn) as lines:
        assert any(line.endswith("(1, ['ann', 2, 1200])\n") for line in lines)
        execute("INSERT INTO orders VALUES (3, 'bob', 100)")
        assert any(line.endswith("(1, ['bob', 1, 100])\n") for line in lines)
    (follow,) = examples("quick-start.md", "sql")
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled), connection.cursor().copy(follow.strip().encode()) as copy:
            for line in copy:
                if bytes(line).endswith(b"\tf\t1\tbob\t1\t100\n"):
                    execute(f"SELECT pg_cancel_backend({connection.info.backend_pid})")


@contextlib.contextmanager
def running(block: str, dsn: str) -> Iterator[Iterator[str]]:
    """The lines that a block prints. The block runs until the context is left."""
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", block.replace(DSN.replace("postgresql", "postgres"), dsn)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        try:
            yield iter(program.stdout)
        finally:
            program.kill()


def test_the_example_resumes_where_it_stopped(dsn: str, table: str, execute: Execute, tmp_path: Path) -> None:
    execute("INSERT INTO t VALUES (1, 10)")
    assert watched(dsn, tmp_path, 2) == ["there is:", "+1 1 10"]
    execute("INSERT INTO t VALUES (2, 20)")
    assert watched(dsn, tmp_path, 1) == ["+1 2 20"]


# A shell's background job ignores SIGINT, and so do its child processes.
INTERRUPTIBLE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def watched(dsn: str, directory: Path, lines: int) -> list[str]:
    """The lines that the example prints until it is interrupted, which is after it has stored its token."""
    token_file = directory / "token"
    before = token_file.read_text() if token_file.exists() else ""
    example = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, str(ROOT / "docs" / "examples" / "watch.py"), dsn, "t", str(token_file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    with example:
        assert example.stdout is not None
        printed = [example.stdout.readline().rstrip() for _ in range(lines)]
        while not token_file.exists() or token_file.read_text() == before:
            threading.Event().wait(0.01)
        example.send_signal(signal.SIGINT)
        try:
            assert example.wait(HANG_S) == 0
        finally:
            example.kill()
    return printed
