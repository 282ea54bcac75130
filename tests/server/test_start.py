"""Starting a server: flags, environment and files, and what a person is told when it cannot be."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from server.config import Config
from server.spark.jvm import end_former
from tests.fix_server import ServerProcess

ROOT = Path(__file__).parent.parent.parent


def serve(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "server", "serve", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TIDEWIRE_HTTP_LISTEN": "127.0.0.1:0", **env},
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refusal(serve("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path)))
    assert f"could not listen on 127.0.0.1:{port}" in told
    assert "HINT" in told


def test_an_address_that_others_can_reach(tmp_path: Path) -> None:
    told = refusal(serve("--listen", "0.0.0.0:0", "--data-dir", str(tmp_path)))
    assert "--allow-remote" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listen = [", "is not valid TOML"),
        ('listen = "nowhere"', "use HOST:PORT"),
        ('timestamp_interval = "1 fortnight"', "use a number with a unit"),
        ("wings = 2", "wings"),
    ],
)
def test_a_config_file_that_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "tidewire.toml"
    file.write_text(text)
    assert told in refusal(serve("--config", str(file)))


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in refusal(serve("--config", str(tmp_path / "absent.toml")))


def test_a_damaged_data_directory(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    told = refusal(serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"))
    assert "damaged" in told
    assert "HINT" in told


def test_a_spark_that_does_not_start(tmp_path: Path) -> None:
    """The server ends and says why: without Spark it could not keep its promises."""
    told = refusal(serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--spark-master", "nowhere://x"))
    assert "Could not parse Master URL" in told
    assert "HINT: see" in told


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--spark-remote", "spark.example:15002"], "use sc://HOST:PORT"),
        (["--spark-remote", "sc://a", "--spark-master", "local[2]"], "cannot both be given"),
        (["--spark-conf", "spark.sql.ansi.enabled=false"], "spark.sql.ansi.enabled is Tidewire's to set"),
        (["--spark-conf", "executor.memory=1g"], "their names begin with spark."),
    ],
)
def test_a_spark_that_cannot_be_meant(tmp_path: Path, flags: list[str], told: str) -> None:
    assert told in refusal(serve("--data-dir", str(tmp_path), *flags))


def test_a_spark_conf_without_a_value(tmp_path: Path) -> None:
    done = serve("--data-dir", str(tmp_path), "--spark-conf", "spark.cores.max")
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr


def test_a_spark_connect_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    remote = f"sc://127.0.0.1:{port}"
    told = refusal(serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--spark-remote", remote))
    assert f"the Spark Connect server at {remote} cannot be reached: UNAVAILABLE" in told
    assert "HINT: Start it, or point --spark-remote at one that runs." in told


def test_spark_settings_come_from_a_file_too(tmp_path: Path) -> None:
    from server.config import load

    file = tmp_path / "tidewire.toml"
    file.write_text('spark_remote = "sc://spark.example"\n[spark_conf]\n"spark.sql.shuffle.partitions" = "8"\n')
    config = load({}, file)
    assert config.spark_remote == "sc://spark.example"
    assert config.spark_conf == {"spark.sql.shuffle.partitions": "8"}


def test_flags_win_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.config import load

    file = tmp_path / "tidewire.toml"
    file.write_text('listen = "127.0.0.1:1"\nlog_format = "json"\ntimestamp_interval = "100ms"\n')
    monkeypatch.setenv("TIDEWIRE_LISTEN", "127.0.0.1:2")
    assert load({}, file).listen == "127.0.0.1:2"
    config = load({"listen": "127.0.0.1:3"}, file)
    assert (config.listen, config.log_format, config.timestamp_interval) == ("127.0.0.1:3", "json", 0.1)


def test_help_names_every_option_and_its_default() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "server", "serve", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    for name in Config.model_fields:
        assert f"--{name.replace('_', '-')}" in shown
    fields = Config.model_fields
    defaults = [fields[name].default for name in ("listen", "http_listen", "spark_master", "log_format")]
    for default in (*defaults, fields["data_dir"].default.name, f"{fields['timestamp_interval'].default:g}s"):
        assert f"[default: ({default})]" in shown


def test_select_1_is_answered_while_spark_starts(tmp_path: Path) -> None:
    begun = time.monotonic()
    server = ServerProcess(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        print(f"first answer after {time.monotonic() - begun:.2f} s")
        assert '"engine ready"' not in server.log_path.read_text(), "Spark was there already: this shows nothing"
    finally:
        assert server.stop() == 0


def test_a_jvm_of_a_life_before_is_ended(tmp_path: Path) -> None:
    """It works in the directory that the next one starts in, also when that was emptied under it."""
    scratch, beside = tmp_path / "scratch", tmp_path / "beside"
    scratch.mkdir()
    beside.mkdir()
    left = subprocess.Popen(["sleep", "60"], cwd=scratch)
    neighbour = subprocess.Popen(["sleep", "60"], cwd=beside)
    scratch.rmdir()
    end_former(scratch)
    assert left.wait(10) == -signal.SIGKILL
    assert neighbour.poll() is None
    neighbour.kill()
    neighbour.wait()
