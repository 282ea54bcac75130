"""The two ends of a session's connection, and how it is encrypted."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import NamedTuple, Self


class Address(NamedTuple):
    ip: str
    port: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """The version of TLS, the cipher, the bits of its key, and the subject, serial number and issuer of a certificate.

    The last three are None if the client has sent no certificate. Names are written as in PostgreSQL: `/CN=...`.
    """

    version: str
    cipher: str
    bits: int
    client_dn: str | None = None
    client_serial: int | None = None
    issuer_dn: str | None = None

    @classmethod
    def of(cls, connection: ssl.SSLObject) -> Self:
        """Returns the encryption of a connection whose handshake is complete."""
        cipher, _, bits = connection.cipher() or ("", "", 0)
        certificate = connection.getpeercert()
        version = connection.version() or ""
        if not certificate:
            return cls(version, cipher, bits)
        serial = int(str(certificate["serialNumber"]), 16)
        return cls(version, cipher, bits, _name(certificate["subject"]), serial, _name(certificate["issuer"]))


@dataclass(frozen=True, slots=True)
class Endpoints:
    """`client`, `server`: None if the connection has no IP addresses. `encryption`: None without TLS."""

    client: Address | None = None
    server: Address | None = None
    encryption: Encryption | None = None

    @classmethod
    def of(cls, transport: asyncio.BaseTransport, tls: ssl.SSLObject | None) -> Self:
        """Returns the endpoints of a connection. `tls`: None if the connection is not encrypted."""
        return cls(
            _address(transport.get_extra_info("peername")),
            _address(transport.get_extra_info("sockname")),
            None if tls is None else Encryption.of(tls),
        )


def _address(name: object) -> Address | None:
    return Address(str(name[0]), int(name[1])) if isinstance(name, tuple) else None


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}


def _name(parts: object) -> str:
    """A distinguished name of `getpeercert`, as OpenSSL's X509_NAME_oneline writes it."""
    assert isinstance(parts, tuple)
    return "".join(f"/{_SHORT.get(key, key)}={value}" for part in parts for key, value in part)
