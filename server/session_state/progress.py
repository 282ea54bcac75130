"""Notices about the progress of a statement that waits or receives rows for long, while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocol.pgwire.errors import Notice, Severity
from server.session_state.context import Context
from server.settings.session_settings import Settings

PSQL_INTERVAL_S = 5.0
"""Of `progress_notice_interval = auto`, for psql. Drivers collect notices or log them as warnings, so they get none."""


@contextmanager
def reporting(context: Context, describe: Callable[[], str | None]) -> Iterator[None]:
    """Sends what `describe` returns as a notice, in each interval that the enclosed part of a statement takes.

    None: there is nothing to report. The setting `progress_notice_interval` is the interval. Clients of the HTTP API,
    and those that want no notices, receive none.
    """
    interval_s, send = interval_s_of(context.settings), context.send_notice
    if interval_s is None or send is None or not context.is_sent(Severity.NOTICE):
        yield
        return
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def wait() -> None:
        nonlocal timer
        timer = loop.call_later(interval_s, report)

    def report() -> None:
        wait()
        text = describe()
        if text is not None:
            send(Notice(text))

    wait()
    try:
        yield
    finally:
        timer.cancel()


def interval_s_of(settings: Settings) -> float | None:
    """The interval of progress notices; None: there are none."""
    if settings["progress_notice_interval"] != "auto":
        return settings.timeout_s("progress_notice_interval")
    return PSQL_INTERVAL_S if settings["application_name"] == "psql" else None
