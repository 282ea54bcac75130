"""What a failed login takes, and what it says."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from catalog import persistence
from catalog.ids import ObjectId
from catalog.roles import MATERIALIZE, Role
from catalog.state import CatalogState
from catalog.store import Store
from protocol.pgwire.errors import PgError
from server.authentication.access import Access, AccessConfig, AccessError, ConnectingClient, check_config
from server.authentication.first_password import set_first_password
from server.authentication.rules import Method
from server.authentication.tls import TlsFiles
from server.authentication.verifiers import Verifier, stored_form
from tests.server.authentication.certificates import Authority

CLIENT = ConnectingClient("10.0.0.1", True)
KNOWN = Role(ObjectId("u1"), "known", login=True, verifier=stored_form("right"))
STATE = (
    CatalogState({}, {}, {}, 1)
    .with_role(KNOWN)
    .with_role(Role(ObjectId("u2"), "bare", login=True))
    .with_role(replace(KNOWN, id=ObjectId("u3"), name="late", valid_until=999))
)


@pytest.fixture
def access() -> Access:
    """Without a limit of failures. The time is one millisecond after 1970."""
    return Access(
        AccessConfig(Method.SCRAM), salt_key=b"key", failures_max=lambda: 0, clock=time.monotonic, now_us=lambda: 1_000
    )


@pytest.mark.parametrize("user", ["known", "bare", "late", "unknown"])
async def test_no_wrong_password_is_accepted(access: Access, user: str) -> None:
    for password in ("wrong", "", "x" * 2_000, *(["right"] if user != "known" else [])):
        with pytest.raises(PgError, match=f'password authentication failed for user "{user}"') as caught:
            await access.check_password(CLIENT, user, password, STATE)
        assert caught.value.sqlstate == "28P01"
        assert caught.value.detail is None
        assert caught.value.hint is None
    await access.check_password(CLIENT, "known", "right", STATE)


async def test_each_failure_takes_the_same_work(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hash with as many iterations, whatever the reason. All else takes microseconds."""
    compute, calls = hashlib.pbkdf2_hmac, []

    def recorded(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        calls.append((name, password, len(salt), iterations))
        return compute(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", recorded)
    for user in ("known", "bare", "late", "unknown"):
        with pytest.raises(PgError):
            await access.check_password(CLIENT, user, "wrong", STATE)
    assert calls == [("sha256", b"wrong", 16, 4096)] * 4


def test_challenges_take_the_same_work(access: Access) -> None:
    """A verifier is parsed and a mock verifier is computed for every user."""
    times: dict[str, list[float]] = {user: [] for user in ("known", "unknown")}
    for _ in range(2_001):
        for user, found in times.items():
            begun = time.perf_counter()
            access.verifier(user, STATE)
            found.append(time.perf_counter() - begun)
    known, unknown = (statistics.median(found) for found in times.values())
    assert 0.5 < known / unknown < 2


# -- configuration ----------------------------------------------------------------------------------------------------


def test_rules_and_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    other, _ = authority.server("other")
    rules = tmp_path / "hba.conf"
    rules.write_text("hostssl all all all scram-sha-256 clientcert=verify-ca\n")
    (tmp_path / "broken").write_text("broken")
    for config, message in (
        (AccessConfig(tmp_path / "none"), "could not open file"),
        (AccessConfig(rules), "a rule requires TLS, but the server has no certificate: use --tls-cert"),
        (AccessConfig(rules, TlsFiles(certificate, key)), "a rule requires client certificates: use --tls-ca"),
        (AccessConfig(Method.CERT, TlsFiles(certificate, key)), "a rule requires client certificates: use --tls-ca"),
        (AccessConfig(tls=TlsFiles(other, key)), f'could not load certificate "{other}" with key "{key}": key values'),
        (AccessConfig(tls=TlsFiles(certificate, tmp_path / "none")), "No such file or directory"),
        (AccessConfig(tls=TlsFiles(certificate, key, tmp_path / "broken")), "could not load certificate authority"),
    ):
        with pytest.raises(AccessError) as caught:
            check_config(config)
        assert message in str(caught.value)
    check_config(AccessConfig(rules, TlsFiles(certificate, key, authority.file)))


def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    """Instead of a prompt for its password, which nobody would see."""
    certificate, key = Authority(tmp_path).server()
    loaded = load_pem_private_key(key.read_bytes(), None)
    encryption = BestAvailableEncryption(b"secret")
    key.write_bytes(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    with pytest.raises(AccessError, match="the key is encrypted"):
        check_config(AccessConfig(tls=TlsFiles(certificate, key)))


def test_the_first_password(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "password"
    for content, message in ((None, "No such file or directory"), ("", "is empty"), ("\nx", "is empty")):
        if content is not None:
            file.write_text(content)
        with pytest.raises(AccessError, match=message):
            set_first_password(data, file)
    file.write_text("md5" + "0" * 32)
    with pytest.raises(AccessError, match="MD5 passwords are not supported"):
        set_first_password(data, file)
    file.write_text("first\nanother line")
    assert set_first_password(data, file)
    file.unlink()
    assert not set_first_password(data, file)
    store = Store(data)
    verifier = Verifier.parse(persistence.load(store).roles[MATERIALIZE.id].verifier or "")
    store.close()
    assert verifier is not None
    assert verifier.matches("first")
