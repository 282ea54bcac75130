"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, with scramp."""

from __future__ import annotations

from collections.abc import Sequence

from scramp import ScramMechanism
from scramp.core import ScramException
from scramp.utils import ServerError

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.utf8 import decode_utf8
from server.authentication.verifiers import Verifier

SCRAM, SCRAM_PLUS = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"
BINDING = "tls-server-end-point"

_MECHANISMS = {name: ScramMechanism(name) for name in (SCRAM, SCRAM_PLUS)}
_ANY_USER = "x"  # stands for the user of the client's first message, which PostgreSQL's clients leave empty


class WrongProof(Exception):
    """The client does not know the password."""


class ScramExchange:
    """One exchange. Call `first` with the client's first message, then `final` with the second one."""

    def __init__(self, verifier: Verifier, binding: bytes | None) -> None:
        """`binding`: the hash of the server's certificate. None without TLS."""
        self._verifier = verifier
        self._binding = binding
        self._server = _MECHANISMS[SCRAM].make_server(self._auth_info)

    @property
    def mechanisms(self) -> Sequence[str]:
        """The mechanisms to offer to the client, the preferred one first."""
        return (SCRAM,) if self._binding is None else (SCRAM_PLUS, SCRAM)

    def first(self, mechanism: str, data: bytes | None) -> bytes:
        """Returns the server's first message. PgError 08P01 or 28000."""
        if mechanism not in self.mechanisms:
            raise PgError(SqlState.PROTOCOL_VIOLATION, "client selected an invalid SASL authentication mechanism")
        text = decode_utf8(data or b"")
        header, bare = _split(text)
        if mechanism == SCRAM_PLUS and not header.startswith("p="):
            raise _malformed("The client selected SCRAM-SHA-256-PLUS, but its message has no channel binding.")
        if mechanism == SCRAM and header.startswith("p="):
            raise _malformed("The client selected SCRAM-SHA-256, but its message has a channel binding.")
        binding = None if self._binding is None else (BINDING, self._binding)
        try:
            self._server = _MECHANISMS[mechanism].make_server(self._auth_info, channel_binding=binding)
            # scramp refuses an empty user, which is what libpq sends: the user is the one of the StartupMessage.
            self._server.set_client_first(header + _with_user(bare))
            self._server.client_first_bare = bare  # what the client signs
            return str(self._server.get_server_first()).encode()
        except ScramException as error:
            raise _refusal(error) from None

    def final(self, data: bytes) -> bytes:
        """Returns the server's last message. WrongProof, or PgError 08P01 or 28000."""
        try:
            self._server.set_client_final(decode_utf8(data))
            return str(self._server.get_server_final()).encode()
        except ScramException as error:
            if error.server_error is ServerError.INVALID_PROOF:
                raise WrongProof from None
            raise _refusal(error) from None

    def _auth_info(self, _: str) -> tuple[bytes, bytes, bytes, int]:
        verifier = self._verifier
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations


def _split(text: str) -> tuple[str, str]:
    """Splits the client's first message into the GS2 header, with its second comma, and the rest."""
    parts = text.split(",", 2)
    if len(parts) < 3:
        raise _malformed("The first message has no header.")
    return f"{parts[0]},{parts[1]},", parts[2]


def _with_user(bare: str) -> str:
    """Replaces the user of `n=<user>,...`. A message without this attribute is returned unchanged."""
    user, comma, rest = bare.partition(",")
    return f"n={_ANY_USER}{comma}{rest}" if user.startswith("n=") else bare


def _malformed(detail: str) -> PgError:
    return PgError(SqlState.PROTOCOL_VIOLATION, "malformed SCRAM message", detail=detail)


def _refusal(error: ScramException) -> PgError:
    match error.server_error:
        case ServerError.CHANNEL_BINDINGS_DONT_MATCH:
            return PgError(SqlState.INVALID_AUTHORIZATION_SPECIFICATION, "SCRAM channel binding check failed")
        case ServerError.SERVER_DOES_SUPPORT_CHANNEL_BINDING:
            return PgError(
                SqlState.INVALID_AUTHORIZATION_SPECIFICATION,
                "SCRAM channel binding negotiation error",
                detail="The client supports SCRAM channel binding but thinks the server does not.  "
                "However, this server does support channel binding.",
            )
        case _:
            return _malformed("The message does not have the form of RFC 5802.")
