"""The loop of `tidewire top`: reads, draws, waits."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from server.top.reading import Reading, read
from server.top.screen import screen

RETRY_S = 1.0  # after the connection was lost
_LINE_MAX = 10_000  # characters


class Unreachable(Exception):
    """The server cannot be reached, or refuses the connection. The message says why."""


async def show_once(dsn: str, console: Console) -> None:
    """Prints the tables once, without rates. Unreachable if the server cannot be reached.

    Into a file or a pipe, lines are as long as necessary, so that no value is shortened.
    """
    if not console.is_terminal:
        console.width = _LINE_MAX
    connection = await _connected(dsn)
    try:
        console.print(screen(_server(dsn), None, await read(connection)))
    finally:
        await connection.close()


async def show(dsn: str, interval_s: float, console: Console) -> None:
    """Shows the tables until it is cancelled. Reconnects after a loss. Unreachable if it cannot connect at first."""
    connection = await _connected(dsn)
    before: Reading | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                try:
                    if connection is None:
                        connection = await _connected(dsn)
                    now = await read(connection)
                    live.update(screen(_server(dsn), before, now), refresh=True)
                    before = now
                    await asyncio.sleep(interval_s)
                except (Unreachable, OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError) as error:
                    if connection is not None:
                        connection.terminate()
                    connection, before = None, None
                    live.update(Group(Text(f"{_server(dsn)}: {error}", "red")), refresh=True)
                    await asyncio.sleep(RETRY_S)
        finally:
            if connection is not None:
                connection.terminate()


async def _connected(dsn: str) -> Any:
    try:
        return await asyncpg.connect(dsn, timeout=10, server_settings={"application_name": "tidewire top"})
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise Unreachable(f"could not connect: {error}" if str(error) else "could not connect: timeout") from None


def _server(dsn: str) -> str:
    """The server of a URL, without the password."""
    return dsn.rpartition("@")[2].removeprefix("postgres://").removeprefix("postgresql://")
