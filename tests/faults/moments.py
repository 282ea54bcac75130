"""Places in the server's code at which it can be made to die, as by kill -9: between two steps that belong together."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catalog import payloads, store
from catalog.log import Log
from catalog.payloads import Payloads
from catalog.store import Store
from server.coordinator.committer import Committer


@dataclass(frozen=True)
class Moment:
    """Before or after each call of `owner.attribute`. `passes_max`: how many calls can be expected in a run."""

    owner: Any
    attribute: str
    after: bool
    passes_max: int


MOMENTS = {
    "start, before the migrations": Moment(store, "migrate", False, 1),
    "start, after the migrations": Moment(store, "migrate", True, 1),
    "start, the log is read": Moment(Log, "__init__", True, 1),
    "start, before a time is closed": Moment(Committer, "close_times", False, 1),
    "start, a time is closed": Moment(Committer, "close_times", True, 1),
    "commit, before its transaction": Moment(Store, "_transact", False, 40),
    "commit, a batch is inserted": Moment(Log, "insert", True, 40),
    "commit, on disk and not acknowledged": Moment(Store, "_transact", True, 40),
    "commit of one batch, before its statement": Moment(Store, "_insert_alone", False, 40),
    "commit of one batch, on disk and not acknowledged": Moment(Store, "_insert_alone", True, 40),
    "commit, readable and not acknowledged": Moment(Log, "committed", True, 40),
    "payload, not synced": Moment(payloads, "sync", False, 6),
    "payload, not named": Moment(Payloads, "write", True, 3),
    "compaction, merged": Moment(Log, "merge", True, 10),
    "compaction, on disk and not known": Moment(Log, "replaced", False, 10),
    "compaction, done": Moment(Log, "replaced", True, 10),
    "payload, to be removed": Moment(Payloads, "remove", False, 3),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(seconds: float) -> None:
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


def die_at(name: str, passing: int) -> None:
    """Makes the process die when it reaches the moment for the `passing`-th time."""
    moment = MOMENTS[name]
    original: Callable[..., Any] = getattr(moment.owner, moment.attribute)
    left = passing

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            die()

    @functools.wraps(original)
    def around(*arguments: Any, **named: Any) -> Any:
        if not moment.after:
            passed()
        result = original(*arguments, **named)
        if moment.after:
            passed()
        return result

    @functools.wraps(original)
    async def around_async(*arguments: Any, **named: Any) -> Any:
        if not moment.after:
            passed()
        result = await original(*arguments, **named)
        if moment.after:
            passed()
        return result

    setattr(moment.owner, moment.attribute, around_async if asyncio.iscoroutinefunction(original) else around)
