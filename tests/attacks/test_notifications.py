"""Sessions that listen on many channels, and transactions that send many notifications."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from server.session_state.listening import NOTIFICATION_BYTES_MAX
from tests.attacks.clients import meanwhile, resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.server.frontend.raw_client import RawClient, query, raw_client

pytestmark = pytest.mark.attacks

LISTENERS = 80
CHANNELS = 9_000


@contextmanager
def listeners(server: ServerProcess, channels: int) -> Iterator[list[RawClient]]:
    """Sessions that listen on the channel `common`, each on one of its own, and on further ones."""
    clients = []
    try:
        for number in range(LISTENERS):
            clients.append(client := RawClient(server.port))
            client.start("materialize", "materialize")
            further = "".join(f"; LISTEN c{channel}" for channel in range(channels))
            client.exchange(query(f"LISTEN common; LISTEN own{number}{further}"))
        yield clients
    finally:
        for client in clients:
            client.socket.close()


def test_notifications_are_not_copied_for_each_receiver(own_server: ServerProcess) -> None:
    """The receivers of a transaction's notifications listen on different channels."""
    own = "".join(f"NOTIFY own{number};" for number in range(LISTENERS))
    payloads = NOTIFICATION_BYTES_MAX // 8_000 - 1
    common = "".join(f"NOTIFY common, '{number:07900}';" for number in range(payloads))
    greatest = 0

    def observe(done: threading.Event) -> None:
        nonlocal greatest
        while not done.wait(0.005):
            greatest = max(greatest, resident_bytes(own_server.process.pid))

    with listeners(own_server, 0), raw_client(own_server.port) as client:
        client.start("materialize", "materialize")
        before = resident_bytes(own_server.process.pid)
        with watched(own_server, 0.2), meanwhile(observe):
            assert client.exchange(query(f"BEGIN;{own}{common}COMMIT"))[-2][0] == "C"
            assert client.exchange(query("SELECT 1"))[-1][0] == "Z"
    assert greatest - before < 400 << 20


@pytest.mark.long
def test_many_channels_delay_no_other_session(own_server: ServerProcess) -> None:
    """Neither the notifications nor the end of the sessions that listen."""
    with raw_client(own_server.port) as client:
        client.start("materialize", "materialize")
        with listeners(own_server, CHANNELS) as clients, watched(own_server, 0.2):
            answer = client.exchange(query("".join(f"NOTIFY c{channel};" for channel in range(CHANNELS))))
            assert answer[-2][0] == "C"
            for listener in clients:
                listener.socket.close()
            assert client.exchange(query("SELECT 1"))[-1][0] == "Z"
