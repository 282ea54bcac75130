"""The server's process: its limits, its signals, and the start and end of the server in it."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
import uvloop

from server.config import Config
from server.runtime.recursion import allow_nesting
from server.runtime.shutdown import exit_after

if TYPE_CHECKING:
    from server.app import App

# A session creates many short-lived objects and few cycles. Cancelled parses and ended sessions leave cycles:
# up to about 1,250,000 objects, 175 MB, wait for a collection of the third generation.
GC_THRESHOLDS = 50_000, 5, 5
DESCRIPTORS_WANTED = 65_536
GRACE_S = 2.0  # how long clients may take at shutdown to read what was written to them
SHUTDOWN_S = 20.0  # then the process exits; stopping the engine may take 5 s


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the server could not start or could not continue, for the user."""

    message: str
    hint: str | None = None


def run(config: Config) -> Failure | None:
    """Runs the server until SIGTERM or SIGINT. Returns the failure that ended it early."""
    # A py4j thread that computes in Python would otherwise block the event loop for 5 ms at a time.
    sys.setswitchinterval(0.0005)
    allow_nesting()
    # Each client uses a descriptor. The soft limit, often 1,024, exists for programs that use select().
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    failure = uvloop.run(_serve(config))
    gc.unfreeze()  # DuckDB reports its own objects as leaked if the interpreter cannot collect them at exit
    return failure


async def _serve(config: Config) -> Failure | None:
    """Runs the server until SIGTERM or SIGINT."""
    from catalog.store import StoreError
    from server.app import App  # imports everything: here, after the arguments are checked
    from server.authentication.access import AccessError

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        app = App(config)
    except StoreError as error:
        return Failure(str(error), error.hint)
    except AccessError as error:
        return Failure(str(error))
    loop.add_signal_handler(signal.SIGHUP, app.access.reload_soon)
    try:
        failure = await _start(app, config)
        return await _stopped(app, stop) if failure is None else failure
    finally:
        exit_after(SHUTDOWN_S)
        await app.close(GRACE_S)


async def _start(app: App, config: Config) -> Failure | None:
    """Starts the server and opens its ports. Returns the reason if that is impossible."""
    from catalog.store import MustEnd, StoreError

    try:
        await app.start()
    except StoreError as error:
        return Failure(str(error), error.hint)
    except MustEnd as error:
        return Failure(str(error))
    try:
        host, port = await app.listen()
    except OSError as error:
        return Failure(
            f"could not listen on {config.listen}: {error.strerror}",
            "Stop whatever uses that port, or choose another with --listen.",
        )
    try:
        http = await app.listen_http()
    except OSError as error:
        return Failure(
            f"could not listen on {config.http_listen} for HTTP: {error.strerror}",
            "Stop whatever uses that port, choose another with --http-listen, or none with --http-listen ''.",
        )
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    structlog.get_logger().info(
        "listening",
        host=host,
        port=port,
        tls=app.access.tls is not None,
        http="off" if http is None else f"{'http' if app.access.tls is None else 'https'}://{http[0]}:{http[1]}",
        psql=f"psql postgres://materialize@{host}:{port}/materialize",
    )
    return None


async def _stopped(app: App, stop: asyncio.Event) -> Failure | None:
    """Waits until `stop` is set, or until the server has failed, and returns the failure."""
    log = structlog.get_logger()
    events: list[asyncio.Future[Any]] = [asyncio.create_task(stop.wait()), app.failed]
    await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        log.info("stopping")
        return None
    cause = app.failed.result()
    message = getattr(cause, "message", str(cause))
    log.error("server failed", reason=message)  # logged before the shutdown, which may be slow or forced
    return Failure(message)
