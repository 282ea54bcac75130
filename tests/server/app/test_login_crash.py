"""SIGKILL of servers and their authentication: roles, verifiers and rules survive, and SIGHUP reloads the rules."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from tests.fix_server import server_without_spark
from tests.server.authentication.certificates import Authority

pytestmark = pytest.mark.crash


def test_passwords_and_rules_survive_kills(tmp_path: Path) -> None:
    """A password counts as soon as it is acknowledged, and the former one no longer."""
    certificate, key = Authority(tmp_path).server()
    (tmp_path / "password").write_text("first\n")
    rules = tmp_path / "hba.conf"
    rules.write_text("hostssl all all all scram-sha-256\n")
    flags = ["--hba-file", str(rules), "--tls-cert", str(certificate), "--tls-key", str(key)]
    flags += ["--superuser-password-file", str(tmp_path / "password")]
    passwords = {"materialize": "first"}
    for attempt in range(3):
        server = server_without_spark(tmp_path / "data", *flags)
        try:
            for user, password in passwords.items():
                with psycopg.connect(server.dsn, user=user, password=password) as connection:
                    assert connection.info.user == user
            with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
                psycopg.connect(server.dsn, password=passwords["materialize"], sslmode="disable")
            with psycopg.connect(server.dsn, password=passwords["materialize"], autocommit=True) as connection:
                verb = "ALTER" if attempt else "CREATE"
                connection.execute(
                    f"{verb} ROLE alice LOGIN PASSWORD 'a{attempt}' CONNECTION LIMIT {attempt + 5}".encode()
                )
                connection.execute(f"ALTER ROLE materialize PASSWORD 'm{attempt}'".encode())
                passwords = {"materialize": f"m{attempt}", "alice": f"a{attempt}"}
                server.kill()
        finally:
            if server.process.poll() is None:
                server.kill()
    server = server_without_spark(tmp_path / "data", *flags)
    try:
        with psycopg.connect(server.dsn, password=passwords["materialize"]) as connection:
            row = connection.execute("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'alice'").fetchone()
            assert row == (7,)
        rules.write_text("host all all all reject\n")
        server.process.send_signal(signal.SIGHUP)
        server.await_event("configuration reloaded")
        with pytest.raises(psycopg.OperationalError, match="rejects connection"):
            psycopg.connect(server.dsn, password=passwords["materialize"])
    finally:
        server.kill()
    log = server.log_path.read_text()
    assert not any(password in log for password in ("first", "'a0'", "SCRAM-SHA-256$"))
