"""The rules, certificates and failed logins of one server, and their reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.authentication.failures import FailedLogins
from server.authentication.rules import (
    ClientCertificate,
    Method,
    Peer,
    Rule,
    Rules,
    RulesError,
    address_of,
    read_rules,
    rules_of,
)
from server.authentication.tls import Tls, TlsError, TlsFiles
from server.authentication.verifiers import Verifier, in_password_thread
from server.runtime.limited_log import unauthenticated

if TYPE_CHECKING:  # the options are read before Arrow, which the catalog imports, is configured
    from catalog.roles import Role
    from catalog.state import CatalogState

log = structlog.get_logger()


class AccessError(Exception):
    """The rules or the certificates cannot be used. The message names file and line."""


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """`rules`: the rule file, or the method for all clients. `tls`: None without TLS."""

    rules: Path | Method = Method.TRUST
    tls: TlsFiles | None = None


class _Loaded(NamedTuple):
    rules: Rules
    tls: Tls | None

    @classmethod
    def of(cls, config: AccessConfig) -> _Loaded:
        """AccessError."""
        try:
            rules = rules_of(config.rules) if isinstance(config.rules, Method) else read_rules(config.rules)
            tls = None if config.tls is None else Tls.load(config.tls)
        except (RulesError, TlsError) as error:
            raise AccessError(str(error)) from None
        if rules.use_tls and tls is None:
            raise AccessError("a rule requires TLS, but the server has no certificate: use --tls-cert and --tls-key")
        if rules.need_client_certificates and (config.tls is None or config.tls.ca is None):
            raise AccessError(
                "a rule requires client certificates: use --tls-ca with the certificates of their issuers"
            )
        return cls(rules, tls)


def check_config(config: AccessConfig) -> None:
    """AccessError if the rules or the certificates cannot be used."""
    _Loaded.of(config)


class ConnectingClient(NamedTuple):
    """A client before its authentication. `certificate_name`: the CN of its verified certificate.

    `has_certificate`: whether it has a verified certificate.
    """

    address: str | None
    is_encrypted: bool
    has_certificate: bool = False
    certificate_name: str | None = None


class Access:
    """Decides how clients authenticate, and checks their passwords."""

    def __init__(
        self,
        config: AccessConfig,
        *,
        salt_key: bytes,
        failures_max: Callable[[], int],
        clock: Callable[[], float],
        now_us: Callable[[], int],
    ) -> None:
        """`salt_key`: see `Verifier.mock`. `now_us`: the time in microseconds since 1970. AccessError."""
        self._config = config
        self._loaded = _Loaded.of(config)
        self._salt_key = salt_key
        self._now_us = now_us
        self.loaded: Callable[[], None] = lambda: None
        """Called when the files were read again."""
        self._reloading: asyncio.Task[None] | None = None
        self.failures = FailedLogins(failures_max, clock)

    @property
    def tls(self) -> Tls | None:
        """The certificates for new connections."""
        return self._loaded.tls

    def warn_without_passwords(self, state: CatalogState) -> None:
        """Logs a warning if the rules require passwords and no role has one."""
        if not self._loaded.rules.use(Method.TRUST, Method.CERT) and not any(r.verifier for r in state.roles.values()):
            log.warning(
                "no role has a password: nobody can log in",
                hint="Start with --superuser-password-file, or set a password on a server without --auth.",
            )

    def reload_soon(self) -> None:
        """Reads the files again, in the background. If one is faulty, the old rules and certificates remain."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self.reload(), name="reload")

    async def reload(self) -> None:
        try:
            self._loaded = await asyncio.to_thread(_Loaded.of, self._config)
        except AccessError as error:
            log.error("configuration not reloaded", reason=str(error))
        else:
            self.loaded()
            log.info("configuration reloaded")

    def rule(self, client: ConnectingClient, database: str, user: str, state: CatalogState) -> Rule:
        """Returns the rule for a client, which has the certificate that the rule requires. PgError 28000."""
        peer = Peer(address_of(client.address), client.is_encrypted, database, user)
        rule = self._loaded.rules.find(peer, state)
        if rule is None or rule.method is Method.REJECT:
            encryption = "SSL encryption" if client.is_encrypted else "no encryption"
            who = f'host "{client.address}", user "{user}", database "{database}", {encryption}'
            self._log(client, user, "no rule" if rule is None else f"rejected by the rule in line {rule.line}")
            raise _refused(
                f"no pg_hba.conf entry for {who}" if rule is None else f"pg_hba.conf rejects connection for {who}"
            )
        is_shown = rule.method is Method.CERT or rule.certificate is ClientCertificate.OF_USER
        if (is_shown or rule.certificate is not None) and not client.has_certificate:
            self._log(client, user, "no client certificate")
            raise _refused("connection requires a valid client certificate")
        if is_shown and client.certificate_name != user:
            self._log(client, user, "client certificate of another user")
            raise _refused(f'certificate authentication failed for user "{user}"')
        return rule

    def verifier(self, user: str, state: CatalogState) -> tuple[Verifier, str | None]:
        """Returns the verifier for a user's password, and why no password matches it, for the log."""
        role = state.role_named(user)
        mock = Verifier.mock(self._salt_key, user)
        known = Verifier.parse(str(mock) if role is None or role.verifier is None else role.verifier)
        if role is None:
            reason: str | None = "unknown role"
        elif role.verifier is None:
            reason = "no password assigned"
        else:
            reason = "password expired" if self._is_expired(role) else None
        return (known, None) if known is not None and reason is None else (mock, reason)

    def _is_expired(self, role: Role) -> bool:
        return role.valid_until is not None and role.valid_until < self._now_us()

    def check_rate(self, client: ConnectingClient) -> None:
        """PgError 28000 if too many logins from this address have failed."""
        wait_s = self.failures.wait_s(client.address)
        if wait_s:
            raise PgError(
                SqlState.INVALID_AUTHORIZATION_SPECIFICATION,
                f'too many failed logins from host "{client.address}"',
                hint=f"Try again in {wait_s} s.",
            )

    def failed(self, client: ConnectingClient, user: str, reason: str | None) -> PgError:
        """Counts and logs a failed login. Returns its error, 28P01."""
        self.failures.failed(client.address)
        self._log(client, user, reason or "wrong password")
        return PgError(SqlState.INVALID_PASSWORD, f'password authentication failed for user "{user}"')

    async def check_password(self, client: ConnectingClient, user: str, password: str, state: CatalogState) -> None:
        """Checks a password, in the thread for passwords. PgError 28P01, or 28000 after too many failures."""
        self.check_rate(client)
        verifier, reason = self.verifier(user, state)
        matches = await in_password_thread(verifier.iterations, verifier.matches, password)
        self.check_rate(client)  # others may have failed meanwhile
        if not matches or reason is not None:
            raise self.failed(client, user, reason)

    @staticmethod
    def _log(client: ConnectingClient, user: str, reason: str) -> None:
        unauthenticated.info("login failed", client=client.address, user=user, reason=reason)


def _refused(message: str) -> PgError:
    return PgError(SqlState.INVALID_AUTHORIZATION_SPECIFICATION, message)
