"""Why the brokers of a connection cannot be reached.

librdkafka connects again and again, and passes the reason of each failure to the error callback of its client. The call
that waits for a broker only times out.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from time import monotonic

from confluent_kafka import KafkaError

from catalog.objects.secrets import Secret
from server.ingest.upstream import UpstreamError

HANDSHAKE_S = 2.0  # for the handshake that finds out why a certificate is not accepted

_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_DOWN = (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._RESOLVE)
_BROKER = re.compile(r"^(?:\w+://)?(?P<address>[^/\s]+:\d+)(?:/\w+)?: ")
_STATE = re.compile(r" \(after \d+ms in state \w+\).*$", re.DOTALL)
_NOT_VERIFIED = "certificate verify failed"


class Brokers:
    """The failures of one client of librdkafka. `failed` is its error callback; one thread uses the rest."""

    def __init__(self, connection: Mapping[str, str | Secret], configuration: Mapping[str, str]) -> None:
        """`configuration`: the options of the connection as those of librdkafka."""
        self.down_since: float | None = None
        """Since when no broker can be used, by the monotonic clock; None if one can be, or if that is not known."""
        self._address = configuration["bootstrap.servers"]
        self._authority = configuration.get("ssl.ca.pem")
        self._secrets = [value.reveal() for value in connection.values() if isinstance(value, Secret)]
        self._cause: KafkaError | None = None

    def failed(self, error: KafkaError) -> None:
        """The error callback, which librdkafka calls within another call."""
        if error.code() in _DOWN and self.down_since is None:
            self.down_since = monotonic()
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which follows the error that says why
            self._cause = error

    def reached(self) -> None:
        """Notes that a broker has answered."""
        self.down_since = self._cause = None

    @property
    def have_refused(self) -> bool:
        """Whether a broker was reached and did not accept the client, or was not accepted by it."""
        return self._cause is not None and self._cause.code() in _REFUSED

    def unreachable(self, reason: str) -> UpstreamError:
        """The error of a call that no broker answered. `reason`: if no other one is known. It may take HANDSHAKE_S."""
        hint = "Check that a broker runs there, and the options of the connection."
        if self._cause is not None:
            code, text = self._cause.code(), self._cause.str()
            reason = _STATE.sub("", _BROKER.sub("", text))
            if code == KafkaError._AUTHENTICATION:
                hint = "Check SASL MECHANISMS, SASL USERNAME and SASL PASSWORD of the connection."
                if any(secret and secret in reason for secret in self._secrets):  # a broker may send anything
                    reason = "SASL authentication failed"
            elif _NOT_VERIFIED in reason:
                hint = "Check the certificate of the broker, and SSL CERTIFICATE AUTHORITY of the connection."
                reason = self._verification(text)
            elif "SSL" in reason:
                hint = "Check SECURITY PROTOCOL, SSL CERTIFICATE and SSL KEY of the connection."
        return UpstreamError(f'could not connect to Kafka at "{self._address}": {reason}', hint)

    def _verification(self, text: str) -> str:
        """Why a certificate is not accepted, which librdkafka does not say: from another handshake with the broker."""
        found = _BROKER.match(text)
        host, _, port = found["address"].rpartition(":") if found is not None else ("", "", "")
        try:
            context = ssl.create_default_context(cadata=self._authority)
            with (
                socket.create_connection((host.strip("[]"), int(port)), HANDSHAKE_S) as plain,
                context.wrap_socket(plain, server_hostname=host.strip("[]")),
            ):
                return _NOT_VERIFIED
        except ssl.SSLCertVerificationError as error:
            return f"{_NOT_VERIFIED}: {error.verify_message}"
        except (OSError, ValueError):
            return _NOT_VERIFIED
