"""The demo as a program: its arguments, every way in which it ends, and a short replay that checks itself."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from interrupts import SIGNALS, Interrupts, exit_code
from local_server import LocalServer

from tests.demo.conftest import DEMO
from tests.fix_spark import processes_naming

COMMAND = [sys.executable, str(DEMO / "departures.py")]
TIMEOUT_S = 240


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)


@contextmanager
def running(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """The running demo. Kills it and fails the test if it does not end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.terminate()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert any(text in line for line in process.stdout), process.communicate()


@pytest.fixture
def restored_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored_signals")
def test_an_interrupt_can_be_deferred() -> None:
    interrupts = Interrupts()
    reached = []

    def start() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGTERM)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt) as raised:
        start()
    assert reached == ["end"]
    assert exit_code(raised.value) == 143
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupts.hold()
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--day", "2014-01-01"), "argument --day: the flights are of 2013"),
        (("--day", "yesterday"), "argument --day: write it as 2013-07-10"),
        (("--speed", "fast"), "argument --speed: must be a number"),
        (("--speed", "0"), "argument --speed: must be greater than 0"),
        (("--minutes", "-1"), "argument --minutes: must be greater than 0"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_a_url_without_a_server_is_reported(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = run("--url", f"postgres://materialize@127.0.0.1:{closed.getsockname()[1]}/materialize", cwd=tmp_path)
    assert done.returncode == 1
    assert "demo: failed while connecting: " in done.stderr
    assert "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
def test_a_short_replay_checks_itself(tmp_path: Path) -> None:
    done = run("--once", "--minutes", "40", "--no-history", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "\x1b" not in done.stdout
    assert "psql postgres://materialize@127.0.0.1:" in done.stdout
    for name in ("departures", "traffic"):
        assert re.search(
            rf"^{name}: \d+ rows from \d+ updates .* equal to pandas over the same file$", done.stdout, re.M
        )
    assert re.search(r"^40 transactions with \d+ changes, to the last row: \d+\.\d s", done.stdout, re.M)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
@pytest.mark.long
def test_an_interrupted_replay_can_be_run_again(tmp_path: Path) -> None:
    data_dir = tmp_path / "kept"
    kept = ("--no-history", "--data-dir", str(data_dir))
    with running(*kept, cwd=tmp_path) as process:
        read_until(process, "loading the tables")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130
    assert errors.startswith("\nStopped while loading")
    assert "replays the day from the beginning" in errors
    assert "Traceback" not in errors
    assert processes_naming(data_dir) == []

    with running(*kept, cwd=tmp_path) as process:
        read_until(process, "Subscribe too")
        read_until(process, "transactions")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        assert process.returncode == 143
    assert errors.startswith("\nStopped while replaying 2013-07-10 ")
    assert processes_naming(data_dir) == []

    done = run("--once", "--minutes", "5", *kept, cwd=tmp_path)
    assert done.returncode == 0, done
    assert "the tables were there already" in done.stdout


@pytest.mark.crash
@pytest.mark.long
def test_a_difference_is_printed_and_the_demo_fails(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data")
    try:
        server.wait_until_listening()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA nyc")
            connection.execute("CREATE TABLE nyc.airlines (carrier text NOT NULL, name text NOT NULL)")
            connection.execute("INSERT INTO nyc.airlines SELECT 'X' || n, 'Nobody' FROM generate_series(1, 16) n")
        done = run("--once", "--minutes", "2", "--no-history", "--url", server.url, cwd=tmp_path)
    finally:
        server.stop()
    assert done.returncode == 1
    assert "they DIFFER from pandas over the same file" in done.stdout
    assert re.search(r"^    missing  1 x \(", done.stdout, re.M)
    assert re.search(r"^2 transactions", done.stdout, re.M)
