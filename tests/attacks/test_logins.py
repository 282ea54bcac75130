"""Attacks on authentication and TLS.

Role `materialize` is trusted, so that `watched` can measure what others notice.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from protocol.pgwire.messages.startup import SSLRequest, StartupMessage
from server.authentication.verifiers import ITERATIONS_MAX, Verifier
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.server.authentication.certificates import Authority
from tests.server.frontend.raw_client import frame, query

pytestmark = pytest.mark.attacks

RULES = """
host    all materialize 127.0.0.1/32 trust
hostssl all paul,mallory all         password
host    all all         all          scram-sha-256
"""
STORM_S = 5.0
GROWTH_BYTES_MAX = 100 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("logins")
    certificate, key = Authority(directory).server()
    rules = directory / "hba.conf"
    rules.write_text(RULES)
    server = ServerProcess(
        directory / "data", "--hba-file", str(rules), "--tls-cert", str(certificate), "--tls-key", str(key)
    )
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE USER alice PASSWORD 'right'")
        connection.execute("CREATE USER paul PASSWORD 'right'")
    yield server
    server.kill()


def limit_failures(server: ServerProcess, count: int) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET failed_logins_max = {count}".encode())


def opened(server: ServerProcess, data: bytes = b"", port: int = 0) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port or server.port), timeout=30)
    client.sendall(data)
    return client


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["postgresql"])
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def is_closed(client: socket.socket, deadline: float) -> bool:
    """Whether the server closes the connection before the deadline."""
    try:
        while True:
            client.settimeout(max(0.01, deadline - time.monotonic()))
            if not client.recv(65_536):
                return True
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def storm(attack: Callable[[], None], threads: int = 4) -> int:
    """Repeats an attack for STORM_S. Returns how often."""
    ends = time.monotonic() + STORM_S
    done = [0] * threads
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            while time.monotonic() < ends:
                attack()
                done[number] += 1
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures
    return sum(done)


@pytest.mark.parametrize("port", ["sql", "http"])
def test_half_open_handshakes_are_closed_and_others_are_served(server: ServerProcess, port: str) -> None:
    """1,000 connections stop in the middle of the handshake."""
    hello = client_hello()
    before = resident_bytes(server.process.pid)
    with watched(server), ExitStack() as stack:
        clients = []
        for number in range(1_000):
            data = hello[: len(hello) // 2] if number % 2 else hello
            with contextlib.suppress(ConnectionError):  # the HTTP port closes those beyond its limit at once
                target = server.http_port if port == "http" else 0
                clients.append(stack.enter_context(opened(server, data, target)))
        assert resident_bytes(server.process.pid) - before < GROWTH_BYTES_MAX
        deadline = time.monotonic() + 30
        assert all(is_closed(client, deadline) for client in clients)
    with psycopg.connect(server.dsn, user="alice", password="right", sslmode="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_flood_of_handshakes_leaves_time_for_others(server: ServerProcess) -> None:
    """Each connection costs the server a key exchange and a signature."""
    hello = client_hello()

    def attack() -> None:
        with contextlib.suppress(ConnectionError), opened(server, hello) as client:
            client.recv(100)

    with watched(server):
        assert storm(attack) > 100


@pytest.mark.parametrize("port", ["sql", "http"])
def test_endless_handshakes_are_cut_off(server: ServerProcess, port: str) -> None:
    """Records of 16 KiB that claim to be parts of one handshake message of 16 MiB. Each is a line of the log."""
    record = b"\x16\x03\x01\x40\x00"
    target = server.http_port if port == "http" else 0
    with watched(server), opened(server, record + b"\x01\xff\xff\xff" + bytes(0x3FFC), target) as client:
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                client.sendall(record + bytes(0x4000))
                time.sleep(0.001)
    assert "Traceback" not in server.log_path.read_text()


def test_scram_messages_out_of_order_and_oversized(server: ServerProcess) -> None:
    """Each connection gets an error of the protocol, or is closed. None is accepted, and none stays open."""
    limit_failures(server, 0)
    startup = StartupMessage({"user": "alice", "database": "materialize"}).serialize()
    first = b"n,,n=,r=nonce"
    initial = frame(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first)
    final = frame(b"p", b"c=biws,r=nonce,p=" + b"A" * 43 + b"=")
    messages = [
        *(initial, final, query("SELECT 1"), startup, SSLRequest().serialize(), client_hello()),
        frame(b"p", b"right\0"),
        frame(b"p", b"SCRAM-SHA-256-PLUS\0" + struct.pack(">i", -1)),
        frame(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", 2**31 - 1)),
        frame(b"p", b"x" * 1_100),
        b"p" + struct.pack(">i", 2**31 - 1) + b"x" * 100_000,
        b"p" + struct.pack(">i", 3),
        frame(b"p", b"\xff" * 500),
        frame(b"p", b"c=" + b"," * 900),
    ]
    choose = random.Random(62)
    with watched(server):
        for _ in range(500):
            sent = [startup, *choose.choices(messages, k=choose.randint(1, 4))]
            with opened(server) as client:
                try:
                    for message in sent:
                        client.sendall(message)
                    client.shutdown(socket.SHUT_WR)
                except ConnectionError:
                    continue
                received = b""
                with contextlib.suppress(ConnectionError):
                    while part := client.recv(65_536):
                        received += part
                assert b"R\0\0\0\x08\0\0\0\0" not in received, sent  # AuthenticationOk
                assert b"R\0\0\0" in received[:4], sent  # the request
        with psycopg.connect(server.dsn, user="alice", password="right") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_damaged_records_end_only_their_connection(server: ServerProcess) -> None:
    choose = random.Random(63)
    hello = client_hello()
    with watched(server):
        for _ in range(300):
            damaged = bytearray(hello)
            for _ in range(choose.randint(1, 8)):
                damaged[choose.randrange(1, len(damaged))] = choose.randrange(256)
            with opened(server, bytes(damaged)) as client:
                with contextlib.suppress(ConnectionError):
                    client.shutdown(socket.SHUT_WR)
                assert is_closed(client, time.monotonic() + 10)


@pytest.mark.parametrize(("user", "sslmode"), [("alice", "disable"), ("alice", "require"), ("paul", "require")])
def test_a_storm_of_logins_leaves_time_for_others(server: ServerProcess, user: str, sslmode: str) -> None:
    """Wrong passwords. Each of paul's makes the server compute a verifier. There is no limit of failures here."""
    limit_failures(server, 0)

    def attack() -> None:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn, user=user, password="wrong", sslmode=sslmode)

    before = resident_bytes(server.process.pid)
    with watched(server):
        assert storm(attack) > 50
    assert resident_bytes(server.process.pid) - before < GROWTH_BYTES_MAX
    with psycopg.connect(server.dsn, user=user, password="right", sslmode="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.long
def test_expensive_verifiers_delay_no_other_login(server: ServerProcess) -> None:
    """A role may compute its own verifier, of which each login by password takes a quarter of a second."""
    limit_failures(server, 0)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        expensive = Verifier.of("right", iterations=ITERATIONS_MAX)
        connection.execute(f"CREATE USER mallory PASSWORD '{expensive}'".encode())

    def attack(done: threading.Event) -> None:
        while not done.is_set():
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(server.dsn, user="mallory", password="wrong", sslmode="require").close()

    waits = []
    with watched(server), meanwhile(*[attack] * 20):
        time.sleep(1)
        for _ in range(5):
            begun = time.monotonic()
            with psycopg.connect(server.dsn, user="paul", password="right", sslmode="require") as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            waits.append(time.monotonic() - begun)
    assert min(waits) < 2  # it waits for one verifier of a quarter of a second, not for twenty


def test_guesses_of_one_address_are_limited(server: ServerProcess) -> None:
    """Of the guesses of five seconds, only the first ones are checked, and one in three seconds afterwards."""
    limit_failures(server, 10)
    outcomes = {"password authentication failed": 0, "too many failed logins": 0}
    lock = threading.Lock()

    def attack() -> None:
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(server.dsn, user="alice", password="wrong", sslmode="disable")
        with lock:
            outcomes[next(words for words in outcomes if words in str(caught.value))] += 1

    try:
        with watched(server):
            storm(attack)
        assert outcomes["password authentication failed"] <= 10 + STORM_S / 3 + 1
        assert outcomes["too many failed logins"] > 10
    finally:
        limit_failures(server, 0)


def test_no_password_is_in_the_log(server: ServerProcess) -> None:
    """After all other tests of this file."""
    text = Path(server.log_path).read_text()
    assert "login failed" in text
    assert "SCRAM-SHA-256$" not in text
    for line in text.splitlines():
        assert '"right"' not in line
