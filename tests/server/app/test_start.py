"""Starting a server: flags, environment, config files, and the messages if it cannot start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from unittest import mock
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from psycopg import errors
from typer.testing import CliRunner

from server import __main__ as command
from server.config import Config
from server.spark.embedded.jvm import PART_S, ClassArchive, kill_leftover_processes
from tests.fix_server import ServerProcess, server_without_spark
from tests.polling import HANG_S

ROOT = Path(__file__).parents[3]


def serve(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a server that cannot start."""
    return subprocess.run(
        [sys.executable, "-m", "server", "serve", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TIDEWIRE_HTTP_LISTEN": "127.0.0.1:0", **env},
    )


def refused_options(*flags: str, code: int = 1, **env: str) -> str:
    """Runs `tidewire serve` in this process, whose options must be refused before it starts. Returns its stderr."""
    with mock.patch("uvloop.run", side_effect=AssertionError("the options were accepted")):
        result = CliRunner().invoke(command.app, ["serve", *flags], env=env)
    assert result.exit_code == code, result.output
    return result.stderr


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_disk_that_fails_after_the_directory_was_opened(tmp_path: Path) -> None:
    """A full disk may have had space for the commit that opens the directory, and none for the next."""
    program = """
from catalog.store import Store
from server import __main__ as command

opened = Store.__init__

def fails_later(self, directory):
    opened(self, directory)
    self._writer.execute("PRAGMA query_only = 1")

Store.__init__ = fails_later
command.main()
"""
    flags = ["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http-listen", ""]
    done = subprocess.run([sys.executable, "-c", program, *flags], capture_output=True, text=True, timeout=60)
    message = refusal(done)
    assert f'could not use data directory "{tmp_path}": attempt to write a readonly database' in message
    assert "HINT: Choose a directory on a disk with space" in message


@pytest.mark.slow
def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refusal(serve("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path)))
    error, hint = message.splitlines()[-2:]  # the shutdown prints nothing after them
    assert f"could not listen on 127.0.0.1:{port}" in error
    assert hint.startswith("HINT: ")


@pytest.mark.slow
def test_a_faulty_rule_file(tmp_path: Path) -> None:
    file, data = tmp_path / "hba.conf", tmp_path / "data"
    file.write_text("local all all trust\nhost all all all magic\n")
    message = refusal(serve("--listen", "127.0.0.1:0", "--data-dir", str(data), "--hba-file", str(file)))
    assert f'line 2 of file "{file}": invalid authentication method "magic"' in message
    assert not data.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--auth", "scram-sha-256", "--hba-file", "f"], "auth and hba_file cannot both be given"),
        (["--tls-cert", "f"], "tls_cert and tls_key must be given together"),
        (["--tls-ca", "f"], "tls_ca requires tls_cert and tls_key"),
    ],
)
def test_options_of_authentication_that_exclude_each_other(flags: list[str], message: str) -> None:
    assert message in refused_options(*flags)


def test_an_address_that_others_can_reach(tmp_path: Path) -> None:
    for trusting in ([], ["--auth", "trust"]):
        message = refused_options("--listen", "0.0.0.0:0", "--data-dir", str(tmp_path), *trusting)
        assert "0.0.0.0:0 can be reached from other machines, and clients would not authenticate" in message
        assert "--auth scram-sha-256 or --hba-file" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen = [", "is not valid TOML"),
        ('listen = "nowhere"', "use HOST:PORT"),
        ('timestamp_interval = "1 fortnight"', "use a number with a unit"),
        ("wings = 2", "wings"),
    ],
)
def test_a_config_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tidewire.toml"
    file.write_text(text)
    assert message in refused_options("--config", str(file))


def test_a_missing_config_file(tmp_path: Path) -> None:
    assert "does not exist" in refused_options("--config", str(tmp_path / "absent.toml"))


@pytest.mark.slow
def test_a_damaged_data_directory(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    message = refusal(serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"))
    assert "damaged" in message
    assert "HINT" in message


def without_spark(server: ServerProcess, reason: str, hint: str) -> None:
    """Checks that log and /readyz say why Spark is unavailable, and that only statements that need it fail."""
    event = server.await_event("Spark is not available")
    assert event["level"] == "error"
    assert reason in event["reason"]
    assert hint in event["hint"]
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(errors.CannotConnectNow, match="the Spark engine is not available") as refused:
            connection.execute("SELECT sum(k) FROM t")
        assert reason in str(refused.value.diag.message_detail)
        assert hint in str(refused.value.diag.message_hint)
        stream = connection.cursor().stream("SUBSCRIBE t")
        assert next(stream)[-1] == 1
        stream.close()
    with pytest.raises(HTTPError) as answer, urlopen(f"http://127.0.0.1:{server.http_port}/readyz"):
        pass
    assert answer.value.code == 503
    page = answer.value.read().decode()
    assert reason in page
    assert str(server.directory) not in page, "it needs no login"
    assert urlopen(f"http://127.0.0.1:{server.http_port}/healthz").status == 200


def fake_java(home: Path, does: str) -> dict[str, str]:
    """Returns an environment whose `java` is a shell script: it prints a version, or runs the command `does`."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit; fi
{does}
""")
    executable.chmod(0o755)
    return {"JAVA_HOME": str(home)}


@pytest.mark.crash
def test_a_server_whose_java_hangs_runs_other_statements_and_stops(tmp_path: Path) -> None:
    """Java is restarted repeatedly. SIGTERM meanwhile stops the server in an orderly way."""
    java = fake_java(tmp_path / "java", "exec sleep 60")
    server = ServerProcess(tmp_path / "data", module="tests.server.spark.impatient_server", env=java)
    try:
        without_spark(server, "Java did not answer within", "spark.log")
        with psycopg.connect(server.dsn) as writer, psycopg.connect(server.dsn) as reader:
            with pytest.raises(errors.AdminShutdown), writer.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("1\n")
                with reader.cursor().copy("COPY (SUBSCRIBE t) TO STDOUT") as stream:
                    assert stream.read()
                    server.process.send_signal(signal.SIGTERM)
                    with pytest.raises(errors.AdminShutdown):
                        while stream.read():
                            pass
    finally:
        assert server.stop() == 0
    assert "shutdown took too long" not in server.log_path.read_text()


@pytest.mark.crash
def test_spark_is_used_when_a_later_attempt_starts_it(tmp_path: Path) -> None:
    """The server need not be restarted."""
    broken, works = tmp_path / "broken", shutil.which("java")
    assert works is not None
    java = fake_java(tmp_path / "java", f'[ -e {broken} ] && exit 1; exec {works} "$@"')
    broken.touch()
    server = ServerProcess(tmp_path / "data", env=java)
    try:
        without_spark(server, "Java ended with code 1", "spark.log")
        broken.unlink()
        server.await_event("Spark ready")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("SELECT sum(k) FROM t").fetchone() == (1,)
        assert urlopen(f"http://127.0.0.1:{server.http_port}/readyz").status == 200
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--spark-remote", "spark.example:15002"], "use sc://HOST:PORT"),
        (["--spark-remote", "sc://a", "--spark-master", "local[2]"], "cannot both be given"),
        (["--spark-conf", "spark.sql.ansi.enabled=false"], "spark.sql.ansi.enabled is set by Tidewire"),
        (["--spark-conf", "executor.memory=1g"], "their names begin with spark."),
        (["--spark-conf", "spark.driver.memory=1g"], "use spark_memory (--spark-memory)"),
        (["--spark-memory", "2"], "use a number with a unit, such as 2GB or 1536MB"),
        (["--spark-memory", "100MB"], "must be at least 512MB"),
        (["--spark-remote", "sc://a", "--spark-memory", "4g"], "cannot both be given"),
    ],
)
def test_invalid_spark_options(tmp_path: Path, flags: list[str], message: str) -> None:
    assert message in refused_options("--data-dir", str(tmp_path), *flags)


def test_a_spark_conf_without_a_value(tmp_path: Path) -> None:
    assert "KEY=VALUE" in refused_options("--data-dir", str(tmp_path), "--spark-conf", "spark.cores.max", code=2)


@pytest.mark.slow
def test_an_unreachable_spark_connect_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    remote = f"sc://127.0.0.1:{port}"
    server = ServerProcess(tmp_path, "--spark-remote", remote)
    try:
        without_spark(
            server,
            f"the Spark Connect server at {remote} cannot be reached: UNAVAILABLE",
            "Start it, or point --spark-remote at one that runs.",
        )
    finally:
        assert server.stop() == 0


def test_spark_settings_from_a_file(tmp_path: Path) -> None:
    from server.config import load

    file = tmp_path / "tidewire.toml"
    file.write_text('spark_remote = "sc://spark.example"\n[spark_conf]\n"spark.sql.shuffle.partitions" = "8"\n')
    config = load({}, file)
    assert config.spark_remote == "sc://spark.example"
    assert config.spark_conf == {"spark.sql.shuffle.partitions": "8"}


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        ("spark.a=1", {"spark.a": "1"}),
        ("spark.a=1,spark.b.c=x", {"spark.a": "1", "spark.b.c": "x"}),
        ("spark.a=1,2,3, spark.b=k=v", {"spark.a": "1,2,3", "spark.b": "k=v"}),
        ("", {}),
    ],
)
def test_spark_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, conf: dict[str, str]) -> None:
    from server.config import load

    monkeypatch.setenv("TIDEWIRE_SPARK_CONF", text)
    assert load({}, None).spark_conf == conf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark.driver.memory=1g", "use spark_memory (--spark-memory)"),
        ("spark.cores.max", "use KEY=VALUE"),
        ('{"spark.a": 1', "use KEY=VALUE"),
    ],
)
def test_invalid_spark_settings_from_the_environment_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    answer = refused_options("--data-dir", str(tmp_path), TIDEWIRE_SPARK_CONF=text)
    assert message in answer
    assert answer.count("\n") == 1


@pytest.mark.parametrize(("text", "megabytes"), [("4GB", 4096), ("4g", 4096), ("1536MB", 1536), ("1536m", 1536)])
def test_the_memory_of_spark(text: str, megabytes: int) -> None:
    from server.config import load

    assert load({"spark_memory": text}, None).spark_memory == megabytes
    assert load({}, None).spark_memory <= 2048


def test_flags_override_the_environment_and_that_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.config import load

    file = tmp_path / "tidewire.toml"
    file.write_text('listen = "127.0.0.1:1"\nlog_format = "json"\ntimestamp_interval = "100ms"\n')
    monkeypatch.setenv("TIDEWIRE_LISTEN", "127.0.0.1:2")
    assert load({}, file).listen == "127.0.0.1:2"
    config = load({"listen": "127.0.0.1:3"}, file)
    assert (config.listen, config.log_format, config.timestamp_interval) == ("127.0.0.1:3", "json", 0.1)


@pytest.mark.slow
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


def test_the_version_is_that_of_the_package() -> None:
    shown = CliRunner().invoke(command.app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"tidewire {version('tidewire')}\n")


@pytest.mark.crash
def test_select_1_is_answered_while_spark_starts(tmp_path: Path) -> None:
    begun = time.monotonic()
    server = ServerProcess(tmp_path)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        print(f"first answer after {time.monotonic() - begun:.2f} s")
        assert '"Spark ready"' not in server.log_path.read_text(), "Spark was ready before the statement"
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_ctrl_c_prints_only_the_log(tmp_path: Path) -> None:
    """A query on system tables loads DuckDB, which reports objects that the interpreter cannot collect at exit."""
    server = server_without_spark(tmp_path)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) > 10 FROM pg_catalog.pg_class").fetchone() == (True,)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(HANG_S) == 0
    server._log.close()
    lines = server.log_path.read_text().splitlines()
    assert [line for line in lines if not line.startswith("{")] == []


def test_partial_archives_of_killed_servers_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    archive = ClassArchive(tmp_path / "spark-4-java17-0123.archive", 17)
    old, new = archive.part(os.getpid()), archive.part(os.getppid())
    for path in (archive.path, archive.part(ended.pid), old, new):
        path.touch()
    os.utime(old, (time.time() - 2 * PART_S,) * 2)
    archive.sweep()
    assert {*tmp_path.iterdir()} == {archive.path, new}


def test_the_jvm_of_a_killed_server_is_ended(tmp_path: Path) -> None:
    """It runs in the directory in which the next JVM starts, even if that was removed in the meantime."""
    scratch, neighbour_directory = tmp_path / "scratch", tmp_path / "neighbour"
    scratch.mkdir()
    neighbour_directory.mkdir()
    left = subprocess.Popen(["sleep", "60"], cwd=scratch)
    neighbour = subprocess.Popen(["sleep", "60"], cwd=neighbour_directory)
    scratch.rmdir()
    kill_leftover_processes(scratch)
    assert left.wait(HANG_S) == -signal.SIGKILL
    assert neighbour.poll() is None
    neighbour.kill()
    neighbour.wait()
