"""Passwords, and the SCRAM verifiers that are stored instead of them.

A verifier has PostgreSQL's form `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>` (RFC 5803). Computing one
takes milliseconds, in one thread for the whole server: logins cannot take more than one core. Those with the fewest
iterations are computed first, since a role can give itself a verifier that takes 250 times as long as others.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import heapq
import hmac
import itertools
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Self, TypeVar

from scramp.utils import ScramException, saslprep

from protocol.pgwire.errors import PgError, SqlState

ITERATIONS = 4096  # PostgreSQL's default of scram_iterations
ITERATIONS_MAX = 1_000_000  # of verifiers that clients compute: a login by `password` repeats the computation
SALT_BYTES = 16
KEY_BYTES = 32
PASSWORD_CHARS_MAX = 1_000

_FORM = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/=]{1,200})\$([A-Za-z0-9+/=]{44}):([A-Za-z0-9+/=]{44})")
_MD5_FORM = re.compile(r"md5[0-9a-f]{32}")

Result = TypeVar("Result")
_Work = tuple[int, int, Future[Any], Callable[[], Any]]  # ordered by iterations, and then by arrival


class PasswordThread:
    """Computes verifiers one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._numbers = itertools.count()
        self._waiting: list[_Work] = []  # a heap
        self._lock = Lock()

    async def run(self, iterations: int, work: Callable[..., Result], *args: Any) -> Result:
        """Returns what `work` returns, which computes a verifier of so many iterations."""
        future: Future[Result] = Future()
        item: _Work = iterations, next(self._numbers), future, partial(work, *args)
        with self._lock:
            heapq.heappush(self._waiting, item)
        self._thread.submit(self._run_cheapest)
        return await asyncio.wrap_future(future)

    def _run_cheapest(self) -> None:
        with self._lock:
            _, _, future, work = heapq.heappop(self._waiting)
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)


_passwords = PasswordThread()


async def in_password_thread(iterations: int, work: Callable[..., Result], *args: Any) -> Result:
    """See `PasswordThread.run`. There is one for all servers of the process."""
    return await _passwords.run(iterations, work, *args)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Proves knowledge of a password without containing it."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns None if the text is no verifier."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        try:
            salt, stored, server = (b64decode(match[part], validate=True) for part in (2, 3, 4))
        except binascii.Error:
            return None
        return cls(int(match[1]), salt, stored, server) if len(stored) == len(server) == KEY_BYTES else None

    @classmethod
    def of(cls, password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Self:
        """Computes the verifier of a password, by default with a new salt."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", _prepared(password), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), server_key)

    @classmethod
    def mock(cls, key: bytes, user: str) -> Self:
        """A verifier that no password matches, for a user who cannot log in.

        The salt is the same at each attempt: otherwise it would show that the user has no password.
        """
        salt = hmac.digest(key, user.encode(), "sha256")[:SALT_BYTES]
        return cls(ITERATIONS, salt, secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))

    def matches(self, password: str) -> bool:
        """Whether this is the password's verifier. Takes as long as computing one."""
        other = Verifier.of(password[:PASSWORD_CHARS_MAX], salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key) and len(password) <= PASSWORD_CHARS_MAX

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


def stored_form(text: str) -> str:
    """Returns the verifier to store for the text of PASSWORD: a password or a verifier. PgError 0A000 or 22023."""
    if (given := Verifier.parse(text)) is not None:
        if not ITERATIONS <= given.iterations <= ITERATIONS_MAX:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f"a SCRAM verifier must have {ITERATIONS} to {ITERATIONS_MAX} iterations",
            )
        if len(given.salt) < SALT_BYTES:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE, f"the salt of a SCRAM verifier must have at least {SALT_BYTES} bytes"
            )
        return str(given)
    if _MD5_FORM.fullmatch(text):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "MD5 passwords are not supported",
            hint="Give the password itself or its SCRAM verifier. psql's \\password computes the verifier.",
        )
    if len(text) > PASSWORD_CHARS_MAX:
        message = f"a password can have at most {PASSWORD_CHARS_MAX} characters"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    return str(Verifier.of(text))


def _prepared(password: str) -> bytes:
    """The bytes of a password after SASLprep. As in PostgreSQL, one that SASLprep prohibits is used unchanged."""
    try:
        return (saslprep(password) or password).encode()
    except ScramException:
        return password.encode()
