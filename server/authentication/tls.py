"""Certificates: the server's own, and those of clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramp.core import CBindData
from scramp.utils import ScramException

ALPN = "postgresql"


class TlsError(Exception):
    """The certificate or its key cannot be used. The message names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca`: the certificates that may issue those of clients; None: clients need none."""

    certificate: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """Loaded certificates. `binding`: the channel binding tls-server-end-point (RFC 5929).

    The binding is None if the certificate's signature algorithm has no hash function, as Ed25519.
    """

    context: ssl.SSLContext
    http_context: ssl.SSLContext
    binding: bytes | None

    @classmethod
    def load(cls, files: TlsFiles) -> Tls:
        """TlsError."""
        return cls(_context(files, [ALPN]), _context(files, ["http/1.1"]), _binding(files.certificate))


def _context(files: TlsFiles, protocols: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in PostgreSQL: no resumption, whose tickets nobody uses, and no renegotiation, which costs the server more than
    # the client.
    context.options |= (
        ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.num_tickets = 0
    context.set_alpn_protocols(protocols)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(
            f'could not load certificate "{files.certificate}" with key "{files.key}": {_reason(error)}'
        ) from None
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except (OSError, ValueError) as error:
            raise TlsError(f'could not load certificate authority "{files.ca}": {_reason(error)}') from None
        context.verify_mode = ssl.CERT_OPTIONAL  # a rule may require one
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not a PEM file").replace("_", " ").lower()
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _binding(path: Path) -> bytes | None:
    """The hash of the first certificate in the file, which is the server's."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = path.read_text()
    start = text.find(begin)
    stop = text.find(end, start)
    try:
        return bytes(CBindData.from_der(ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)])))
    except ScramException:
        return None


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """The CN of a verified certificate, as `getpeercert` returns it. None if it has none, or more than one."""
    names = [value for parts in (certificate or {}).get("subject", ()) for name, value in parts if name == "commonName"]
    return names[0] if len(names) == 1 and "\0" not in names[0] else None
