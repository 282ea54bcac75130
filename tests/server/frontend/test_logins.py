"""Logins through drivers: passwords, TLS, certificates, rules and their reload. The servers have no Spark."""

from __future__ import annotations

import asyncio
import base64
import http.client
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pg8000.dbapi
import psycopg
import pytest
from cryptography import x509
from psycopg import errors

from protocol.pgwire.messages.startup import SSLRequest, StartupMessage
from server.frontend import client_registry, half_open
from tests.fix_server import ServerThread
from tests.polling import HANG_S, until
from tests.server.authentication.certificates import Authority
from tests.server.frontend.raw_client import RawClient, frame, query, raw_client
from tests.server.http.fix_api import Api
from tests.server.slow_engine import PassingEngine

PASSWORD = "s3cret"
WRONG = 'password authentication failed for user "{}"'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@contextmanager
def running(directory: Path, authority: Authority | None, **config: Any) -> Iterator[ServerThread]:
    """A server whose superuser has PASSWORD; with TLS, unless `authority` is None."""
    data = directory / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    (directory / "password").write_text(f"{PASSWORD}\n")
    if authority is not None:
        certificate, key = authority.server()
        config |= {"tls_cert": certificate, "tls_key": key, "tls_ca": authority.file}
    server = ServerThread(data, PassingEngine(), superuser_password_file=directory / "password", **config)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[ServerThread]:
    """A server that all tests of this file share: --auth scram-sha-256, with TLS, without a limit of failures."""
    with running(tmp_path_factory.mktemp("scram"), authority, auth="scram-sha-256") as shared:
        with connect(shared) as connection:
            connection.execute("ALTER SYSTEM SET failed_logins_max = 0")
        yield shared


def connect(server: ServerThread, user: str = "materialize", password: str | None = PASSWORD, **options: Any) -> Any:
    return psycopg.connect(server.dsn(), user=user, password=password, autocommit=True, **options)


def role(server: ServerThread, name: str, options: str) -> None:
    """Creates a role that can log in."""
    with connect(server) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {name}".encode())
        connection.execute(f"CREATE USER {name} {options}".encode())


def refusal(server: ServerThread, user: str, password: str | None = None, **options: Any) -> tuple[str, str]:
    """The SQLSTATE and the message with which a login fails, without TLS by default."""
    with raw_client(server.port) as client:
        code, answer = client.start(user, "materialize")[-1]
        if code == "R" and answer[:4] == b"\0\0\0\x0a":
            import scramp

            scram = scramp.ScramClient(["SCRAM-SHA-256"], "x", password)
            first = scram.get_client_first().encode()
            client.send(frame(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first))
            scram.set_server_first(next(client.messages())[1][4:].decode())
            code, answer = client.exchange(frame(b"p", scram.get_client_final().encode()))[-1]
        assert code == "E", (code, answer)
        assert answer[0] == "FATAL"
        return answer[1], answer[2]


@pytest.fixture(autouse=True)
def _start_returns_at_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`RawClient.start` also returns when the server requests authentication."""

    def start(self: RawClient, user: str, database: str | None = None) -> list[tuple[str, Any]]:
        self.send(StartupMessage({"user": user, "database": database or user}).serialize())
        found = []
        for message in self.messages():
            found.append(message)
            if message[0] == "Z" or (message[0] == "R" and message[1] != b"\0\0\0\0"):
                break
        return found

    monkeypatch.setattr(RawClient, "start", start)


# -- drivers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"sslmode": "disable"},
        {"sslmode": "prefer"},
        {"sslmode": "require", "channel_binding": "require"},
        {"sslmode": "require", "channel_binding": "disable"},
        {"sslmode": "verify-full", "channel_binding": "require"},
        {"sslmode": "require", "sslnegotiation": "direct", "channel_binding": "require"},
        {"sslmode": "require", "ssl_max_protocol_version": "TLSv1.2", "channel_binding": "require"},
        {"sslmode": "require", "ssl_min_protocol_version": "TLSv1.3"},
    ],
)
def test_psycopg(server: ServerThread, authority: Authority, options: dict[str, str]) -> None:
    root = {"sslrootcert": str(authority.file)} if options["sslmode"] == "verify-full" else {}
    with connect(server, **options, **root) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.pgconn.ssl_in_use is (options["sslmode"] != "disable")
        text = "x" * 300_000  # longer than what TLS and the socket take at once
        assert connection.execute("SELECT %s::text", (text,)).fetchone() == (text,)


def one_line(name: x509.Name) -> str:
    """As OpenSSL's X509_NAME_oneline writes it."""
    return "".join(f"/{part.rfc4514_attribute_name}={part.value}" for part in name)


def test_pg_stat_ssl(tmp_path: Path, authority: Authority) -> None:
    rules = tmp_path / "hba.conf"
    rules.write_text("hostssl all alice all cert\nhost all materialize 127.0.0.1/32 trust\n")
    query = "SELECT ssl, version, bits, cipher, client_dn, client_serial, issuer_dn FROM pg_stat_ssl "
    own = query + "WHERE pid = pg_backend_pid()"
    with running(tmp_path, authority, hba_file=rules) as server:
        with connect(server, sslmode="disable") as plain:
            plain.execute("CREATE USER alice")
            assert plain.execute(own).fetchone() == (False, *[None] * 6)
            with connect(server, sslmode="require", ssl_max_protocol_version="TLSv1.2") as encrypted:
                assert encrypted.execute(own).fetchone()[:3] == (True, "TLSv1.2", 256)
            certificate, key = authority.client("alice")
            options = {"sslmode": "require", "sslcert": str(certificate), "sslkey": str(key)}
            with connect(server, "alice", None, **options) as alice:
                known = x509.load_pem_x509_certificate(certificate.read_bytes())
                is_encrypted, version, bits, cipher, name, serial, issuer = alice.execute(own).fetchone()
                assert (is_encrypted, version, bits, name) == (True, "TLSv1.3", 256, one_line(known.subject))
                assert cipher.startswith("TLS_")
                assert serial == (known.serial_number if known.serial_number < 10**38 else None)
                assert issuer == one_line(known.issuer)
                others = alice.execute(query + "WHERE pid <> pg_backend_pid()").fetchall()
                assert others == [(None,) * 7]


def test_verify_full_refuses_another_authority(server: ServerThread, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        connect(server, sslmode="verify-full", sslrootcert=str(other.file))


def test_old_tls_is_refused(server: ServerThread) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"SSL error|alert|protocol"):
        connect(server, sslmode="require", ssl_min_protocol_version="TLSv1", ssl_max_protocol_version="TLSv1.1")


async def test_asyncpg(server: ServerThread, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    for tls in (False, context):
        connection = await asyncpg.connect(server.dsn(), password=PASSWORD, ssl=tls)
        assert await connection.fetchval("SELECT $1::int + 1", 1) == 2
        await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError, match=WRONG.format("materialize")):
        await asyncpg.connect(server.dsn(), password="wrong", ssl=False)
    with pytest.raises(asyncpg.InvalidPasswordError, match=WRONG.format("materialize")):
        await asyncpg.connect(server.dsn(), password="wrong", ssl=context)
    direct = await asyncpg.connect(server.dsn(), password=PASSWORD, ssl=context, direct_tls=False)
    await direct.close()


def test_pg8000(server: ServerThread, authority: Authority) -> None:
    """Its SCRAM uses channel binding over TLS."""
    for context in (False, ssl.create_default_context(cafile=str(authority.file))):
        connection = pg8000.dbapi.connect(
            "materialize", "127.0.0.1", "materialize", server.port, PASSWORD, ssl_context=context
        )
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == [1]
        connection.close()


def psql(
    server: ServerThread, user: str, password: str, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["psql", "-X", "-At", f"host=127.0.0.1 port={server.port} user={user} dbname=materialize", *arguments],
        env={"PATH": "/usr/bin:/bin", "PGPASSWORD": password, **options.pop("env", {})},
        capture_output=True,
        text=True,
        timeout=30,
        **options,
    )


def test_psql_and_its_password_command(server: ServerThread) -> None:
    role(server, "typist", "PASSWORD 'old'")
    # Without a terminal, psql reads the new password from its input, twice.
    done = psql(server, "typist", "old", "-c", "\\password", input="new\nnew\n", start_new_session=True)
    assert done.returncode == 0, done.stderr
    assert psql(server, "typist", "new", "-c", "SELECT current_user").stdout == "typist\n"
    with connect(server) as connection:
        connection.execute("ALTER ROLE typist CONNECTION LIMIT 3 VALID UNTIL '2999-01-01'")
    shown = psql(server, "typist", "new", "-c", "\\du typist").stdout
    assert "3 connections" in shown
    assert "Password valid until 2999-01-01" in shown
    failed = psql(server, "typist", "old", "-c", "SELECT 1")
    assert WRONG.format("typist") in failed.stderr


# -- passwords --------------------------------------------------------------------------------------------------------


def test_wrong_passwords_and_unknown_roles_look_the_same(
    server: ServerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    role(server, "known", "PASSWORD 'right'")
    role(server, "bare", "")
    role(server, "late", "PASSWORD 'right' VALID UNTIL '2020-01-01'")
    with connect(server) as connection:
        connection.execute("DROP ROLE IF EXISTS group_only")
        connection.execute("CREATE ROLE group_only PASSWORD 'right'")
    for user, password in (
        *(("known", "wrong"), ("bare", "right"), ("late", "right"), ("nobody", "right"), ("group_only", "wrong")),
    ):
        assert refusal(server, user, password) == ("28P01", WRONG.format(user))
    assert refusal(server, "group_only", "right") == ("28000", 'role "group_only" is not permitted to log in')
    log = capsys.readouterr().out
    for reason in ("wrong password", "no password assigned", "password expired", "unknown role"):
        assert f"reason='{reason}'" in log
    assert "right" not in log


def test_a_challenge_does_not_show_whether_a_role_exists(server: ServerThread) -> None:
    """The salt and the iterations are the same at each attempt, for known and unknown roles."""
    role(server, "known", "PASSWORD 'right'")

    def challenge(user: str) -> tuple[str, str, int]:
        with raw_client(server.port) as client:
            client.start(user, "materialize")
            first = b"n,,n=,r=nonce"
            client.send(frame(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first))
            _, salt, iterations = next(client.messages())[1][4:].decode().split(",")
            return salt, iterations, len(base64.b64decode(salt[2:]))

    for user in ("known", "nobody"):
        assert challenge(user) == challenge(user)
        assert challenge(user)[1:] == ("i=4096", 16)
    assert challenge("nobody") != challenge("nobody2")


def test_the_database_is_not_named_before_the_login(server: ServerThread) -> None:
    with raw_client(server.port) as client:
        assert client.start("materialize", "no_such_database")[-1][0] == "R"


def test_a_valid_until_in_the_future_and_none(server: ServerThread) -> None:
    role(server, "temporary", "PASSWORD 'p' VALID UNTIL '2999-01-01 00:00+00'")
    with connect(server, "temporary", "p") as connection:
        row = connection.execute("SELECT rolvaliduntil::text FROM pg_roles WHERE rolname = 'temporary'").fetchone()
        assert row == ("2999-01-01 00:00:00+00",)
    with connect(server) as connection:
        connection.execute("ALTER ROLE temporary VALID UNTIL 'infinity'")
        with pytest.raises(errors.InvalidDatetimeFormat):
            connection.execute("ALTER ROLE temporary VALID UNTIL 'whenever'")
        row = connection.execute("SELECT valuntil FROM pg_shadow WHERE usename = 'temporary'").fetchone()
        assert row == (None,)


def test_who_may_change_a_password(server: ServerThread) -> None:
    role(server, "self", "PASSWORD 'a'")
    role(server, "other", "PASSWORD 'a'")
    with connect(server, "self", "a") as connection:
        connection.execute("ALTER ROLE self PASSWORD 'b'")
        for statement in ("ALTER ROLE other PASSWORD 'b'", "ALTER ROLE self VALID UNTIL 'infinity'"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
    connect(server, "self", "b").close()
    connect(server, "other", "a").close()
    with connect(server) as connection:
        notices: list[str] = []
        connection.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        connection.execute("ALTER ROLE self PASSWORD ''")
        assert notices == ["empty string is not a valid password, clearing password"]
        assert refusal(server, "self", "b")[0] == "28P01"
        connection.execute("ALTER ROLE self PASSWORD 'c'")
        connect(server, "self", "c").close()
        connection.execute("ALTER ROLE self PASSWORD NULL")
        assert refusal(server, "self", "c")[0] == "28P01"
        with pytest.raises(errors.FeatureNotSupported):
            connection.execute("ALTER ROLE materialize NOLOGIN PASSWORD 'x'")
        for options in ("PASSWORD 'a' PASSWORD 'b'", "VALID UNTIL 'infinity' PASSWORD NULL VALID UNTIL 'infinity'"):
            with pytest.raises(errors.SyntaxError, match="conflicting or redundant options"):
                connection.execute(f"ALTER ROLE self {options}".encode())


def test_secrets_are_shown_nowhere(server: ServerThread, capsys: pytest.CaptureFixture[str]) -> None:
    role(server, "hidden", "PASSWORD 'tell-no-one'")
    with connect(server) as connection, connect(server) as other:
        other.execute("ALTER ROLE hidden PASSWORD 'tell-no-one'")  # its last statement, while others are listed
        stored = server.app.coordinator.state.role_named("hidden")
        assert stored is not None
        assert stored.verifier is not None
        assert stored.verifier.startswith("SCRAM-SHA-256$4096:")
        shown = [repr(stored), repr(server.app.coordinator.state)]
        for name, column in (("pg_authid", "rolname"), ("pg_roles", "rolname"), ("pg_shadow", "usename")):
            row = connection.execute(f"SELECT * FROM {name} WHERE {column} = 'hidden'".encode()).fetchone()
            assert "********" in row
            shown.append(str(row))
        for text in (
            *("SELECT * FROM pg_user", "SELECT * FROM mz_catalog.mz_roles", "SHOW ALL", "SELECT * FROM pg_settings"),
            "SELECT * FROM pg_stat_activity",
        ):
            shown.append(str(connection.execute(text).fetchall()))
        for statement in (
            *("CREATE ROLE hidden PASSWORD 'tell-no-one'", "ALTER ROLE nobody PASSWORD 'tell-no-one'"),
            *("ALTER ROLE hidden PASSWORD 'tell-no-one' PASSWORD 'tell-no-one'",),
            "EXPLAIN CREATE ROLE x PASSWORD 'tell-no-one'",
        ):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(statement)
            shown.append(f"{caught.value.diag.message_primary} {caught.value.diag.message_detail}")
    shown.append(capsys.readouterr().out)
    for text in shown:
        assert "tell-no-one" not in text
        assert "SCRAM-SHA-256$" not in text


def test_the_password_is_not_in_the_data_directory(tmp_path: Path) -> None:
    with running(tmp_path, None, auth="scram-sha-256") as server:
        role(server, "alice", "PASSWORD 'tell-no-one'")
    (tmp_path / "data" / "server.log").touch()
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            assert b"tell-no-one" not in file.read_bytes()
    with running(tmp_path, None, auth="scram-sha-256") as server:
        connect(server, "alice", "tell-no-one").close()


@pytest.mark.parametrize(("config", "warns"), [({"auth": "scram-sha-256"}, True), ({}, False)])
def test_a_server_that_nobody_can_use_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, str], warns: bool
) -> None:
    ServerThread(tmp_path, PassingEngine(), **config).stop()
    assert ("no role has a password: nobody can log in" in capsys.readouterr().out) is warns


# -- limits -----------------------------------------------------------------------------------------------------------


def test_connection_limit(server: ServerThread) -> None:
    role(server, "limited", "PASSWORD 'p' CONNECTION LIMIT 2")
    with connect(server, "limited", "p"), connect(server, "limited", "p"):
        assert refusal(server, "limited", "p") == ("53300", 'too many connections for role "limited"')
        with connect(server) as connection:
            row = connection.execute("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'limited'").fetchone()
            assert row == (2,)
            connection.execute("ALTER ROLE limited CONNECTION LIMIT -1")
            connect(server, "limited", "p").close()
            with pytest.raises(errors.InvalidParameterValue, match="invalid connection limit: -2"):
                connection.execute("ALTER ROLE limited CONNECTION LIMIT -2")


def test_failed_logins_are_limited(tmp_path: Path) -> None:
    with running(tmp_path, None, auth="scram-sha-256") as server:
        with connect(server) as connection:
            connection.execute("ALTER SYSTEM SET failed_logins_max = 3")
            for _ in range(3):
                assert refusal(server, "materialize", "wrong")[0] == "28P01"
            refused = ("28000", 'too many failed logins from host "127.0.0.1"')
            assert refusal(server, "materialize", PASSWORD) == refused
            connection.execute("ALTER SYSTEM SET failed_logins_max = 0")
            connect(server).close()


def test_guesses_at_the_same_time_are_limited(tmp_path: Path) -> None:
    """Each of them has its challenge before the first fails."""
    with running(tmp_path, None, auth="scram-sha-256") as server:
        with connect(server) as connection:
            connection.execute("ALTER SYSTEM SET failed_logins_max = 3")
        clients = [RawClient(server.port) for _ in range(6)]
        first = b"n,,n=,r=nonce"
        nonces = []
        for client in clients:
            client.start("materialize", "materialize")
            client.send(frame(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first))
            nonces.append(next(client.messages())[1][4:].decode().split(",")[0])
        codes = []
        for client, nonce in zip(clients, nonces, strict=True):
            proof = base64.b64encode(bytes(32)).decode()
            codes.append(client.exchange(frame(b"p", f"c=biws,{nonce},p={proof}".encode()))[-1][1][1])
            client.socket.close()
        assert codes == ["28P01"] * 3 + ["28000"] * 3


def test_slow_clients_without_a_session_make_room(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_registry, "HALF_OPEN_MAX", 3)
    monkeypatch.setattr(half_open, "SLOW_S", 0.2)
    silent = [RawClient(server.port) for _ in range(4)]
    time.sleep(0.3)
    with connect(server) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert silent[0].until_ready() == []
    with connect(server, sslmode="disable"):
        pass
    for client in silent:
        client.socket.close()


# -- the rule file ----------------------------------------------------------------------------------------------------


def eventually(holds: Callable[[], bool]) -> None:
    """Waits until a reload in the background has the effect."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_refused(server: ServerThread, user: str, **options: Any) -> str:
    """The message of the refusal; empty if the login succeeds."""
    try:
        connect(server, user, **options).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def test_rules_and_their_reload(tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "hba.conf"
    rules.write_text(
        """
        hostssl   all  alice  all  cert
        hostssl   all  carol  all  scram-sha-256 clientcert=verify-full
        hostssl   all  paul   all  password
        hostnossl all  bob    all  reject
        host      all  trudy,materialize  127.0.0.1/32  trust
        """
    )
    with running(tmp_path, authority, hba_file=rules) as server:
        with connect(server) as connection:
            for name in ("alice", "carol", "paul", "bob", "trudy"):
                connection.execute(f"CREATE USER {name} PASSWORD '{PASSWORD}'".encode())
        certificate, key = authority.client("alice")
        own = {"sslmode": "require", "sslcert": str(certificate), "sslkey": str(key)}
        assert is_refused(server, "alice", password=None, **own) == ""
        assert 'certificate authentication failed for user "carol"' in is_refused(server, "carol", **own)
        certificate, key = authority.client("carol")
        of_carol = {"sslmode": "require", "sslcert": str(certificate), "sslkey": str(key)}
        assert is_refused(server, "carol", **of_carol) == ""
        assert WRONG.format("carol") in is_refused(server, "carol", password="x", **of_carol)
        assert "connection requires a valid client certificate" in is_refused(server, "carol", sslmode="require")
        expired, key = authority.client("alice", expired=True)
        message = is_refused(server, "alice", sslmode="require", sslcert=str(expired), sslkey=str(key))
        assert "certificate" in message
        assert is_refused(server, "paul", sslmode="require") == ""
        assert WRONG.format("paul") in is_refused(server, "paul", password="x", sslmode="require")
        assert WRONG.format("paul") in is_refused(server, "paul", password="y" * 5_000, sslmode="require")
        where = 'host "127.0.0.1", user "{}", database "materialize", no encryption'
        assert refusal(server, "bob") == ("28000", "pg_hba.conf rejects connection for " + where.format("bob"))
        assert refusal(server, "eve") == ("28000", "no pg_hba.conf entry for " + where.format("eve"))
        assert refusal(server, "paul") == ("28000", "no pg_hba.conf entry for " + where.format("paul"))
        assert is_refused(server, "trudy", password=None) == ""

        rules.write_text("host all all all scram-sha-256\nhost all all all\n")
        with connect(server) as connection:
            assert connection.execute("SELECT pg_reload_conf()").fetchone() == (True,)
            fault = f'line 2 of file "{rules}": end-of-line before authentication method specification'
            logged = ""

            def is_logged() -> bool:
                nonlocal logged
                logged += capsys.readouterr().out
                return fault in logged

            eventually(is_logged)
            assert is_refused(server, "trudy", password=None) == ""  # the old rules remain
            rules.write_text("host all all all scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: is_refused(server, "trudy", password="x") != "")
            assert is_refused(server, "bob", sslmode="disable") == ""
        with connect(server, "trudy") as connection:
            with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function pg_reload_conf"):
                connection.execute("SELECT pg_reload_conf()")


def test_the_database_of_a_rule_is_the_one_that_is_used(tmp_path: Path) -> None:
    """A client that names no existing database gets the default one. A rule against that one applies to it."""
    rules = tmp_path / "hba.conf"
    rules.write_text(
        "host materialize bob all reject\nhost all materialize 127.0.0.1/32 trust\nhost all all all scram-sha-256\n"
    )
    with running(tmp_path, None, hba_file=rules) as server:
        role(server, "bob", f"PASSWORD '{PASSWORD}'")
        with raw_client(server.port) as client:
            assert "rejects connection" in client.start("bob", "bob")[-1][1][2]


@contextmanager
def rejecting_secret(directory: Path) -> Iterator[ServerThread]:
    """A server with the database `secret`, to which its rules admit nobody."""
    rules = directory / "hba.conf"
    rules.write_text("host secret all all reject\nhost all all 127.0.0.1/32 trust\n")
    with running(directory, None, hba_file=rules) as server:
        with connect(server) as connection:
            connection.execute("CREATE DATABASE secret")
        yield server


def test_options_do_not_evade_the_rule_of_a_database(tmp_path: Path) -> None:
    with rejecting_secret(tmp_path) as server:
        refused = 'parameter "database" cannot be set by options of a connection'
        for options in ("-c database=secret", "--database=secret", "-c DataBase=secret"):
            with pytest.raises(psycopg.OperationalError, match=refused):
                connect(server, options=options)
        with raw_client(server.port) as client:
            names = {"user": "materialize", "database": "materialize", "DATABASE": "secret"}
            client.send(StartupMessage(names).serialize())
            assert next(client.messages())[1][2] == refused
        api = Api(server.http_port)
        for settings in ({"options": "-c database=secret"}, {"Database": "secret"}, {"database": "secret"}):
            reply = api.post({"query": "SELECT current_database()", "settings": settings})
            assert reply.status == 400
            assert "database" in reply.json["error"]["message"]


def test_a_zero_in_a_name_does_not_evade_a_rule(tmp_path: Path) -> None:
    """In a StartupMessage it would end the name, so that the rules would see another name than the session."""
    with rejecting_secret(tmp_path) as server:
        api = Api(server.http_port)
        query = {"query": "SELECT current_database()"}
        assert api.post(query, "/api/sql?database=secret").status == 401
        reply = api.post(query, "/api/sql?database=secret%00application_name%00x")
        assert (reply.status, reply.json["error"]["sqlstate"]) == (400, "22021")
        reply = Api(server.http_port, "materialize\0application_name\0x").post(query)
        assert (reply.status, reply.json["error"]["sqlstate"]) == (400, "22021")


def test_a_rule_that_trusts_a_user_without_a_role(tmp_path: Path) -> None:
    """The name does not mean the superuser, also if there is no other role."""
    rules = tmp_path / "hba.conf"
    rules.write_text("host all all 127.0.0.1/32 trust\n")
    with running(tmp_path, None, hba_file=rules) as server:
        assert refusal(server, "nobody") == ("28000", 'role "nobody" does not exist')
        assert get(server, "/metrics", None)[0] == 200
        assert get(server, "/metrics", None, "nobody:x") == (401, 'role "nobody" does not exist\n')


def test_certificates_are_reloaded(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), None
    with running(tmp_path, authority, auth="scram-sha-256") as server:
        options = {"sslmode": "verify-full", "sslrootcert": str(tmp_path / "ca.crt")}
        with connect(server, **options) as connection:
            other = Authority(tmp_path)  # overwrites ca.crt
            other.server()
            assert "certificate verify failed" in is_refused(server, "materialize", **options)
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: is_refused(server, "materialize", **options) == "")
            assert connection.execute("SELECT 1").fetchone() == (1,)  # with the old certificate
            (tmp_path / "server.key").write_text("broken")
            connection.execute("SELECT pg_reload_conf()")
            time.sleep(0.2)
            assert is_refused(server, "materialize", **options) == ""


def test_certificates_of_the_http_port_are_reloaded(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "ca.crt").rename(tmp_path / "old.crt")
    authority.file = tmp_path / "old.crt"
    with running(tmp_path, authority, auth="scram-sha-256") as server:
        assert get(server, "/healthz", authority) == (200, "ok\n")
        other = Authority(tmp_path)
        other.server()

        def is_trusted(by: Authority) -> bool:
            try:
                return get(server, "/healthz", by)[0] == 200
            except ssl.SSLCertVerificationError:
                return False

        assert is_trusted(authority)
        assert not is_trusted(other)
        with connect(server) as connection:
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: is_trusted(other))
            assert not is_trusted(authority)
            assert get(server, "/metrics", other, f"materialize:{PASSWORD}")[0] == 200
            (tmp_path / "server.key").write_text("broken")
            connection.execute("SELECT pg_reload_conf()")
            time.sleep(0.2)
            assert is_trusted(other)


# -- TLS --------------------------------------------------------------------------------------------------------------


def test_bytes_before_the_handshake_are_refused(server: ServerThread) -> None:
    """A man in the middle could insert them before the client's encrypted ones (CVE-2021-23214)."""
    with raw_client(server.port) as client:
        client.send(SSLRequest().serialize() + StartupMessage({"user": "materialize"}).serialize())
        error = ("FATAL", "08P01", "received unencrypted data after SSL request")
        assert client.until_ready() == [("E", error)]


def encrypted(server: ServerThread, protocols: list[str], *, direct: bool) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    if not direct:
        plain.sendall(SSLRequest().serialize())
        assert plain.recv(1) == b"S"
    return context.wrap_socket(plain)


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
def test_direct_tls_requires_alpn(server: ServerThread, protocols: list[str]) -> None:
    """So a browser cannot be made to send a request that the server takes for PostgreSQL's protocol."""
    with encrypted(server, protocols, direct=True) as client:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.sendall(StartupMessage({"user": "materialize"}).serialize())
            assert client.recv(1) == b""
            raise ConnectionError


@pytest.mark.parametrize("direct", [False, True])
def test_encryption_cannot_be_requested_again(server: ServerThread, direct: bool) -> None:
    with encrypted(server, ["postgresql"], direct=direct) as client:
        client.sendall(SSLRequest().serialize())
        assert b"unsupported frontend protocol 1234.5679" in client.recv(1_000)


def test_messages_in_one_record_with_the_handshake(server: ServerThread) -> None:
    """A cancel request over TLS, and bytes in many small records."""
    with encrypted(server, ["postgresql"], direct=True) as client:
        for byte in StartupMessage({"user": "materialize", "database": "materialize"}).serialize():
            client.sendall(bytes([byte]))
        assert client.recv(100).startswith(b"R")
    with connect(server, sslmode="require") as connection:
        connection.cancel_safe()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def sent_with_the_handshake(port: int, protocol: str, data: bytes) -> bytes:
    """Sends the last bytes of the handshake together with `data`. Returns what the server answers until it closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    received, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, out)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.sendall(out.read())
                received.write(client.recv(65_536))
        tls.write(data)
        client.sendall(out.read())
        answer = b""
        while True:
            try:
                while part := tls.read(65_536):
                    answer += part
                return answer
            except ssl.SSLWantReadError:
                encrypted = client.recv(65_536)
                received.write(encrypted) if encrypted else received.write_eof()


def test_long_messages_with_the_handshake(server: ServerThread) -> None:
    """What follows the handshake does not count as a part of it, even if it arrives before the handshake is handled."""
    head = b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    login = base64.b64encode(f"materialize:{PASSWORD}".encode())
    body = b'{"query": "SELECT length($1) AS n", "parameters": ["' + b"x" * 1_000_000 + b'"]}'
    request = b"%bAuthorization: Basic %b\r\nContent-Length: %d\r\n\r\n%b" % (head, login, len(body), body)
    assert b"[[1000000]]" in sent_with_the_handshake(server.http_port, "http/1.1", request)
    startup = StartupMessage({"user": "materialize"}).serialize()
    assert b"08P01" in sent_with_the_handshake(server.port, "postgresql", startup + b"p" * 500_000)


def test_a_server_without_certificates_answers_with_n(passing_server: ServerThread) -> None:
    with pytest.raises(psycopg.OperationalError, match="server does not support SSL"):
        psycopg.connect(passing_server.dsn(), sslmode="require")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(passing_server.dsn(), sslmode="require", sslnegotiation="direct")
    with raw_client(passing_server.port) as client:
        client.send(b"\x16\x03\x01\x02\x00\x01")
        assert client.until_ready()[0][1][2] == "invalid length of startup packet"


def test_plain_text_is_no_handshake(server: ServerThread, capsys: pytest.CaptureFixture[str]) -> None:
    with raw_client(server.port) as client:
        client.send(SSLRequest().serialize())
        assert client.socket.recv(1) == b"S"
        client.send(query("SELECT 1"))
        client.socket.settimeout(10)
        while client.socket.recv(1_000):  # an alert
            pass
    assert "TLS failed" in capsys.readouterr().out


def test_queries_before_the_login_are_refused(server: ServerThread) -> None:
    with raw_client(server.port) as client:
        client.start("materialize", "materialize")
        error = ("FATAL", "08P01", "expected SASL response, got message type 81")
        assert client.exchange(query("SELECT 1")) == [("E", error)]


# -- HTTP -------------------------------------------------------------------------------------------------------------


def authorized(credentials: str | None) -> dict[str, str]:
    """The header of HTTP Basic authentication."""
    if credentials is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}


def get(
    server: ServerThread, path: str, authority: Authority | None, credentials: str | None = None
) -> tuple[int, str]:
    headers = authorized(credentials)
    if authority is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    else:
        context = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection("127.0.0.1", server.http_port, timeout=10, context=context)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_http_over_tls(server: ServerThread, authority: Authority) -> None:
    role(server, "reader", "PASSWORD 'p'")
    assert get(server, "/healthz", authority) == (200, "ok\n")
    assert get(server, "/metrics", authority) == (401, "authentication required\n")
    assert get(server, "/nothing", authority)[0] == 401
    assert get(server, "/metrics", authority, "reader:wrong") == (401, WRONG.format("reader") + "\n")
    assert get(server, "/metrics", authority, "nobody:p") == (401, WRONG.format("nobody") + "\n")
    status, text = get(server, "/metrics", authority, "reader:p")
    assert status == 200
    assert "tidewire_sessions" in text
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(server, "/healthz", None)


@asynccontextmanager
async def over_tls(
    authority: Authority, credentials: str | None, certificate: tuple[Path, Path] | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the HTTP port. All its connections are closed at the end, also those of which TLS has ended only."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=authorized(credentials)) as client:
        yield client
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]  # aiohttp does not await them
    async with asyncio.timeout(HANG_S):
        while any(transport._sock is not None for transport in list(transports.values())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        (None, "authentication required"),
        ("caller:wrong", WRONG.format("caller")),
        ("caller:", WRONG.format("caller")),
        ("nobody:p", WRONG.format("nobody")),
        ("unable:p", WRONG.format("unable")),
        (f"materialize:{PASSWORD.upper()}", WRONG.format("materialize")),
    ],
)
async def test_the_api_over_tls_refuses_wrong_passwords(
    server: ServerThread, authority: Authority, credentials: str | None, message: str
) -> None:
    role(server, "caller", "PASSWORD 'p'")
    role(server, "unable", "")  # without a password
    url = f"https://127.0.0.1:{server.http_port}"
    async with over_tls(authority, credentials) as client:
        for method, path in (
            ("POST", "/api/sql"),
            ("GET", "/api/subscribe?query=VALUES(1)"),
            ("GET", "/api/openapi.json"),
            ("GET", "/"),
            ("GET", "/console.js"),
        ):
            body = {"query": "SELECT 1"} if method == "POST" else None
            async with client.request(method, url + path, json=body) as response:
                text = await response.text()
                assert (response.status, message in text.replace("\\", "")) == (401, True), (path, text)
                assert response.headers["WWW-Authenticate"] == 'Basic realm="tidewire", charset="UTF-8"'
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"{url}/api/subscribe?query=VALUES(1)")
        assert caught.value.status == 401
        async with client.get(f"{url}/client.js") as response:
            assert response.status == 200


async def test_the_api_over_tls(server: ServerThread, authority: Authority) -> None:
    """The session is one of the role that has authenticated, with its privileges."""
    role(server, "caller", "PASSWORD 'pässword:with colon'")
    with connect(server) as connection:
        connection.execute("DROP TABLE IF EXISTS open, secret; CREATE TABLE open (a int); CREATE TABLE secret (a int)")
        connection.execute("INSERT INTO open VALUES (7); GRANT SELECT ON open TO caller")
    url = f"https://127.0.0.1:{server.http_port}"
    async with over_tls(authority, "caller:pässword:with colon") as client:

        async def sql(query: str) -> tuple[int, Any]:
            async with client.post(f"{url}/api/sql", json={"query": query}) as response:
                return response.status, await response.json()

        status, answer = await sql("SELECT current_user, session_user")
        assert (status, answer["results"][0]["rows"]) == (200, [["caller", "caller"]])
        status, answer = await sql("SELECT * FROM secret")
        assert (status, answer["error"]["sqlstate"]) == (403, "42501")
        async with client.get(f"{url}/") as page:
            assert page.status == 200
            assert "<title>Tidewire</title>" in await page.text()
        for table, status in (("open", 200), ("secret", 403)):
            path = f"{url}/api/subscribe?query={table}"
            async with client.get(path, headers={"Accept": "text/event-stream"}) as events:
                assert events.status == status
                text = ""
                while status == 200 and "event: rows" not in text:
                    text += (await asyncio.wait_for(events.content.readuntil(b"\n\n"), HANG_S)).decode()
        async with client.ws_connect(f"{url}/api/subscribe?query=open", timeout=aiohttp.ClientWSTimeout(10)) as socket:
            kinds = [(await socket.receive_json(timeout=10))["event"] for _ in range(2)]
            assert kinds == ["start", "rows"]
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"{url}/api/subscribe?query=secret")
        assert caught.value.status == 403


async def test_certificates_of_clients_of_the_api(tmp_path: Path, authority: Authority) -> None:
    rules = tmp_path / "hba.conf"
    rules.write_text(
        """
        hostssl  all  alice  all  cert
        hostssl  all  carol  all  scram-sha-256 clientcert=verify-full
        host     all  materialize  127.0.0.1/32  trust
        """
    )
    with running(tmp_path, authority, hba_file=rules) as server:
        with connect(server) as connection:
            for name in ("alice", "carol"):
                connection.execute(f"CREATE USER {name} PASSWORD '{PASSWORD}'".encode())
        url = f"https://127.0.0.1:{server.http_port}/api/sql"

        async def user(name: str | None, credentials: str | None, *, expired: bool = False) -> tuple[int, str]:
            certificate = None if name is None else authority.client(name, expired=expired)
            async with over_tls(authority, credentials, certificate) as client:
                async with client.post(url, json={"query": "SELECT current_user"}) as response:
                    answer = await response.json()
            rows = answer["results"][0]["rows"] if response.status == 200 else [[answer["error"]["message"]]]
            return response.status, rows[0][0]

        assert await user("alice", None) == (200, "alice")
        assert await user("alice", "alice:ignored") == (200, "alice")
        assert await user(None, None) == (200, "materialize")
        assert await user("alice", f"carol:{PASSWORD}") == (401, 'certificate authentication failed for user "carol"')
        assert await user("carol", f"carol:{PASSWORD}") == (200, "carol")
        assert await user("carol", "carol:wrong") == (401, WRONG.format("carol"))
        assert await user("carol", None) == (401, "authentication required")
        needed = (401, "connection requires a valid client certificate")
        assert await user(None, "alice:ignored") == needed
        assert await user(None, f"carol:{PASSWORD}") == needed
        assert (await user("eve", None))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await user("alice", None, expired=True)


def test_metrics_of_objects_are_for_superusers(server: ServerThread, authority: Authority) -> None:
    """They contain numbers of rows and sizes."""
    role(server, "reader", "PASSWORD 'p'")
    with connect(server) as connection:
        connection.execute("CREATE TABLE held (a int); CREATE HOLD keeper ON held")
        connection.execute("CREATE SOURCE counted FROM LOAD GENERATOR COUNTER")
        try:
            until(lambda: "public.counted" in get(server, "/metrics", authority, f"materialize:{PASSWORD}")[1])
            shown = {
                credentials: get(server, "/metrics", authority, credentials)[1]
                for credentials in ("reader:p", f"materialize:{PASSWORD}")
            }
        finally:
            connection.execute("DROP TABLE held CASCADE; DROP SOURCE counted")
    assert "keeper" not in shown["reader:p"]
    assert "public.counted" not in shown["reader:p"]
    assert 'source="materialize.public.counted"' in shown[f"materialize:{PASSWORD}"]
    assert "tidewire_sessions_opened_total" in shown["reader:p"]
    assert 'tidewire_hold_history_rows{hold="materialize.public.keeper"}' in shown[f"materialize:{PASSWORD}"]


def test_metrics_of_objects_without_authentication(passing_server: ServerThread) -> None:
    """With --auth trust, a request without credentials is one of the superuser, also when there are other roles."""
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE held (a int); CREATE HOLD keeper ON held; CREATE USER reader")
        try:
            assert "keeper" in get(passing_server, "/metrics", None)[1]
            assert "keeper" not in get(passing_server, "/metrics", None, "reader:")[1]
        finally:
            connection.execute("DROP TABLE held CASCADE; DROP USER reader")


def test_http_without_tls(tmp_path: Path) -> None:
    with running(tmp_path, None, auth="scram-sha-256") as server:
        assert get(server, "/healthz", None) == (200, "ok\n")
        for credentials in (None, f"materialize:{PASSWORD}"):
            status, text = get(server, "/metrics", None, credentials)
            assert (status, text) == (403, "passwords are only accepted over TLS: use --tls-cert and --tls-key\n")


def test_http_does_not_take_plain_bytes_for_a_request(server: ServerThread) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        try:
            while part := client.recv(1_000):
                received += part
        except ConnectionError:
            pass
        assert b"HTTP" not in received


async def test_many_logins_at_once(server: ServerThread) -> None:
    async def one() -> int:
        connection = await asyncpg.connect(server.dsn(), password=PASSWORD, ssl="require")
        try:
            return int(await connection.fetchval("SELECT 1"))
        finally:
            await connection.close()

    assert await asyncio.gather(*[one() for _ in range(50)]) == [1] * 50
