"""Verifiers, against libpq's; SCRAM, against scramp's client; and the limit of failed logins."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import PGconn
from scramp import ScramClient

from protocol.pgwire.errors import PgError
from server.authentication.failures import ADDRESSES_MAX, FailedLogins
from server.authentication.scram import BINDING, SCRAM, SCRAM_PLUS, ScramExchange, WrongProof
from server.authentication.verifiers import PASSWORD_CHARS_MAX, PasswordThread, Verifier, stored_form
from server.runtime import limited_log
from tests.examples import examples

PASSWORD = "s3cret"
VERIFIER = Verifier.of(PASSWORD)


# -- verifiers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("password", ["x", "I\u00adX", "\u2168", "p\u0007", "ünïcödé ", "\u0627x"])
def test_postgresql_stores_the_same_verifier(postgres: str, password: str) -> None:
    """Also for passwords that SASLprep changes or prohibits."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SET password_encryption = 'scram-sha-256'")
        connection.execute(f"CREATE ROLE scram_test PASSWORD '{password}'".encode())
        row = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'scram_test'").fetchone()
        connection.execute("DROP ROLE scram_test")
    assert row is not None
    verifier = Verifier.parse(row[0])
    assert verifier is not None
    assert str(verifier) == row[0]
    assert verifier.matches(password)
    assert not verifier.matches(f"{password}x")


def test_verifiers_and_passwords_are_told_apart() -> None:
    assert stored_form(str(VERIFIER)) == str(VERIFIER)
    for other in (f"{VERIFIER}x", str(VERIFIER)[:-4], "SCRAM-SHA-256$x", "md5", "md5" + "F" * 32):
        made = Verifier.parse(stored_form(other))
        assert made is not None
        assert made.matches(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("md5" + "0" * 32, "MD5 passwords are not supported"),
        ("x" * (PASSWORD_CHARS_MAX + 1), "a password can have at most 1000 characters"),
        (str(VERIFIER).replace("$4096:", "$1:"), "a SCRAM verifier must have 4096 to 1000000 iterations"),
        (str(VERIFIER).replace("$4096:", "$99999999:"), "a SCRAM verifier must have 4096 to 1000000 iterations"),
    ],
)
def test_what_cannot_be_stored(text: str, message: str) -> None:
    with pytest.raises(PgError, match=message):
        stored_form(text)


def test_nothing_shows_keys() -> None:
    assert repr(VERIFIER) == "Verifier(iterations=4096)"


def test_a_mock_verifier_has_the_same_salt_each_time() -> None:
    first, second, other = (Verifier.mock(b"key", user) for user in ("a", "a", "b"))
    assert first.salt == second.salt != other.salt
    assert first.iterations == VERIFIER.iterations
    assert len(first.salt) == len(VERIFIER.salt)
    assert not first.matches("")


# -- SCRAM ------------------------------------------------------------------------------------------------------------


def exchange(client: ScramClient, server: ScramExchange, mechanism: str, *, user: str = "") -> None:
    """Raises what the server raises. `user`: of the first message; libpq sends none."""
    first = client.get_client_first().replace("n=x,", f"n={user},")
    if not user:
        client.client_first_bare = client.client_first_bare.replace("n=x,", "n=,")
    client.set_server_first(server.first(mechanism, first.encode()).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("user", ["", "x"])
@pytest.mark.parametrize("binding", [None, b"hash"])
def test_the_right_password_is_accepted_and_another_one_refused(binding: bytes | None, user: str) -> None:
    mechanism = SCRAM if binding is None else SCRAM_PLUS
    for password, is_right in ((PASSWORD, True), ("wrong", False)):
        server = ScramExchange(VERIFIER, binding)
        assert server.mechanisms[0] == mechanism
        client = ScramClient(
            [mechanism], "x", password, channel_binding=None if binding is None else (BINDING, binding)
        )
        if is_right:
            exchange(client, server, mechanism, user=user)
        else:
            with pytest.raises(WrongProof):
                exchange(client, server, mechanism, user=user)


def test_a_client_with_another_channel_is_refused() -> None:
    """As a man in the middle has: its own TLS connection to the client has another certificate."""
    client = ScramClient([SCRAM_PLUS], "x", PASSWORD, channel_binding=(BINDING, b"of the attacker"))
    with pytest.raises(PgError, match="SCRAM channel binding check failed"):
        exchange(client, ScramExchange(VERIFIER, b"of the server"), SCRAM_PLUS)


def test_a_removed_offer_of_channel_binding_is_noticed() -> None:
    first = b"y,,n=,r=nonce"
    with pytest.raises(PgError, match="SCRAM channel binding negotiation error"):
        ScramExchange(VERIFIER, b"hash").first(SCRAM, first)
    assert ScramExchange(VERIFIER, None).first(SCRAM, first).startswith(b"r=nonce")


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [
        (SCRAM, None),
        (SCRAM, b""),
        (SCRAM, b"n,,"),
        (SCRAM, b"n,,n=,r="),
        (SCRAM, b"n,a=admin,n=,r=x"),
        (SCRAM, b"n,,m=ext,n=,r=x"),
        (SCRAM, b"p=tls-server-end-point,,n=,r=x"),
        (SCRAM_PLUS, b"n,,n=,r=x"),
        (SCRAM_PLUS, b"p=tls-unique,,n=,r=x"),
        (SCRAM, b"\xff"),
        ("SCRAM-SHA-1", b"n,,n=,r=x"),
    ],
)
def test_malformed_first_messages(mechanism: str, first: bytes | None) -> None:
    with pytest.raises(PgError) as caught:
        ScramExchange(VERIFIER, b"hash").first(mechanism, first)
    assert caught.value.sqlstate in ("08P01", "22021")


@given(st.binary(max_size=60), st.binary(max_size=60))
@examples(300)
def test_random_messages_are_refused(first: bytes, final: bytes) -> None:
    server = ScramExchange(VERIFIER, None)
    with pytest.raises(PgError):
        server.first(SCRAM, b"n,," + first)
    server = ScramExchange(VERIFIER, None)
    server.first(SCRAM, b"n,,n=,r=nonce")
    with pytest.raises((PgError, WrongProof)):
        server.final(b"c=biws,r=" + final)


def test_messages_out_of_order_are_refused() -> None:
    with pytest.raises(PgError, match="malformed SCRAM message"):
        ScramExchange(VERIFIER, None).final(b"c=biws,r=x,p=AAAA")


def test_libpq_computes_verifiers_that_are_accepted(postgres: str) -> None:
    """What psql's \\password sends."""
    with psycopg.connect(postgres) as connection:
        pgconn: PGconn = connection.pgconn
        text = pgconn.encrypt_password(PASSWORD.encode(), b"u", b"scram-sha-256").decode()
    verifier = Verifier.parse(stored_form(text))
    assert verifier is not None
    assert verifier.matches(PASSWORD)


# -- failures ---------------------------------------------------------------------------------------------------------


class Limited(FailedLogins):
    """The limit is 3. `now` is the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limit = 3
        super().__init__(lambda: self.limit, lambda: self.now)


def test_an_address_is_refused_after_too_many_failures() -> None:
    failures = Limited()
    for _ in range(3):
        assert failures.wait_s("10.0.0.1") == 0
        failures.failed("10.0.0.1")
    assert failures.wait_s("10.0.0.1") == 3
    assert failures.wait_s("10.0.0.2") == 0
    failures.now = 3.0
    assert failures.wait_s("10.0.0.1") == 0
    failures.failed("10.0.0.1")
    assert failures.wait_s("10.0.0.1") == 3
    failures.limit = 0
    assert failures.wait_s("10.0.0.1") == 0


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    failures = Limited()
    for host in range(3):
        failures.failed(f"2001:db8::{host}")
    assert failures.wait_s("2001:db8::ffff%eth0") > 0
    assert failures.wait_s("2001:db8:0:1::1") == 0


def test_the_state_of_failures_is_bounded() -> None:
    failures = Limited()
    for number in range(ADDRESSES_MAX + 100):
        failures.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(failures) == ADDRESSES_MAX


def test_the_log_of_failures_is_bounded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limited_log, "monotonic", lambda: now)
    log = limited_log.LimitedLog()
    for _ in range(1_000):
        log.info("login failed")
    assert capsys.readouterr().out.count("login failed") == limited_log.BURST
    now = 1.0
    log.info("login failed")
    assert "omitted=900" in capsys.readouterr().out


async def test_verifiers_with_few_iterations_are_computed_first() -> None:
    thread, release, done = PasswordThread(), threading.Event(), list[int]()
    first = asyncio.create_task(thread.run(0, release.wait))
    waiting = [asyncio.create_task(thread.run(number, done.append, number)) for number in (500, 7, 9, 8, 3)]
    await asyncio.sleep(0)
    waiting[2].cancel()
    await asyncio.wait(waiting[2:3])
    release.set()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    assert done == [3, 7, 8, 500]
    with pytest.raises(ZeroDivisionError):
        await thread.run(1, lambda: 1 // 0)
