"""Notifications are delivered in turns, in the order of their commits, to those that listened before."""

from __future__ import annotations

import asyncio

import pytest

from server.coordinator import notifications
from server.coordinator.notifications import Notifications


class Inbox:
    def __init__(self) -> None:
        self.received: list[bytes] = []

    def notified(self, data: bytes) -> None:
        self.received.append(data)


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "TURN_S", -1.0)


async def delivered() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("short_turns")
def test_turns_keep_the_order_and_the_effects_of_listen_and_unlisten() -> None:
    async def check() -> None:
        sender, early, late, gone, again = Notifications(), Inbox(), Inbox(), Inbox(), Inbox()
        for inbox in (early, gone, again):
            sender.listen("db", "a", inbox)
        sender.send("db", [("a", b"1"), ("b", b"2"), ("a", b"3")])
        assert not early.received  # its turn has not come
        sender.listen("db", "a", late)
        sender.listen("db", "a", early)  # it listens already
        sender.unlisten("db", "a", gone)
        sender.unlisten("db", "a", again)
        sender.listen("db", "a", again)
        sender.listen("db", "b", early)
        sender.send("db", [("b", b"4"), ("a", b"5")])
        await delivered()
        assert early.received == [b"13", b"45"]
        assert late.received == again.received == [b"5"]
        assert not gone.received

    asyncio.run(check())


@pytest.mark.usefixtures("short_turns")
def test_a_receiver_that_has_ended_is_forgotten() -> None:
    async def check() -> None:
        sender, ended = Notifications(), Inbox()
        channels = [("db", f"c{number}") for number in range(10)]
        for database, channel in channels:
            sender.listen(database, channel, ended)
        sender.forget(channels, ended)
        await delivered()
        for database, channel in channels:
            sender.send(database, [(channel, b"1")])
        await delivered()
        assert not ended.received

    asyncio.run(check())


@pytest.mark.usefixtures("short_turns")
def test_commits_wait_while_too_much_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "WAITING_BYTES_MAX", 1_000)

    async def check() -> None:
        sender, inbox = Notifications(), Inbox()
        await sender.wait_for_room()
        sender.listen("db", "a", inbox)
        sender.send("db", [("a", bytes(2_000))])
        waiting = asyncio.create_task(sender.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        assert inbox.received == [bytes(2_000)]

    asyncio.run(check())
