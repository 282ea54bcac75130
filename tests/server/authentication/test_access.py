"""What a failed login takes, and what it says."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import replace

import pytest

from catalog.ids import ObjectId
from catalog.roles import Role
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError
from server.authentication.access import Access, AccessConfig, Client
from server.authentication.rules import Method
from server.authentication.verifiers import stored_form

CLIENT = Client("10.0.0.1", True)
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
