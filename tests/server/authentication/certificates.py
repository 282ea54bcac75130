"""Certificates for tests: of servers at 127.0.0.1 and localhost, and of clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


class Authority:
    """A certificate authority. Writes its files to `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.file = directory / "ca.crt"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(self, name: str = "server", *, expired: bool = False) -> tuple[Path, Path]:
        """Issues a certificate for localhost. Returns the files of the certificate and its key."""
        return self._write(name, self._ca.issue_cert("localhost", "127.0.0.1", not_after=_end(expired)))

    def client(self, common_name: str, *, expired: bool = False) -> tuple[Path, Path]:
        """Issues a client's certificate."""
        issued = self._ca.issue_cert(f"{common_name}@example.org", common_name=common_name, not_after=_end(expired))
        return self._write(f"client-{common_name}-{expired}", issued)

    def _write(self, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return certificate, key


def _end(expired: bool) -> datetime:
    return datetime.now(UTC) + timedelta(days=-1 if expired else 1)
