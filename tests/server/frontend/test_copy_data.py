"""The data of COPY FROM that arrives while earlier data is decoded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyInResponse
from server.frontend.copy import _copy_data
from tests.polling import HANG_S
from tests.protocol.test_connection import ready


async def test_data_that_arrives_during_decoding_is_not_waited_for() -> None:
    connection, arrival = ready(), asyncio.Event()
    connection.send(CopyInResponse(0, ()))
    sender: Any = SimpleNamespace(connection=connection, transport=SimpleNamespace(limit_input=lambda waiting: None))
    connection.receive_data(CopyData(b"1\n").serialize())
    data = _copy_data(sender, arrival)
    assert await anext(data) == b"1\n"
    connection.receive_data(CopyData(b"2\n").serialize() + CopyDone().serialize())
    arrival.set()  # as Session.received
    async with asyncio.timeout(HANG_S):
        assert [part async for part in data] == [b"2\n"]
