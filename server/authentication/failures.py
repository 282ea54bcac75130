"""The limit of failed logins per address.

Each address has FAILURES_MAX failures. They return at the rate of one per RECOVERY_S. An address that has none left is
refused before its password is checked. Successful logins count nothing, so that many clients behind one address are not
limited. The state is bounded: of more than ADDRESSES_MAX addresses, those whose last failure is oldest are forgotten.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable

RECOVERY_S = 3.0
ADDRESSES_MAX = 10_000
IPV6_PREFIX = 64  # a client usually has all addresses of such a network


class FailedLogins:
    """The failed logins of one server. `limit` returns the failures that an address may have, 0 for no limit."""

    def __init__(self, limit: Callable[[], int], clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()  # the number, at the time

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, address: str | None) -> None:
        """Counts a failure."""
        network = network_of(address)
        self._failures[network] = self._left_of(network) + 1, self._clock()
        self._failures.move_to_end(network)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def wait_s(self, address: str | None) -> int:
        """Returns the seconds, rounded up, until the address may try again; 0 if it may now."""
        limit = self._limit()
        if not limit or not self._failures:
            return 0
        return max(0, math.ceil((self._left_of(network_of(address)) + 1 - limit) * RECOVERY_S))

    def _left_of(self, network: str) -> float:
        """The failures of an address that still count."""
        number, at = self._failures.get(network, (0.0, 0.0))
        return max(0.0, number - (self._clock() - at) / RECOVERY_S)


def network_of(address: str | None) -> str:
    """The network of an address whose clients count as one: an address of IPv4, the /64 of one of IPv6."""
    if address is None or ":" not in address:
        return address or ""
    return str(ipaddress.IPv6Network((address.partition("%")[0], IPV6_PREFIX), strict=False))
