"""Starts drivers on a Spark Connect server. gRPC is imported only if such a server is used."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from server.spark import EngineUnavailable
from server.spark.connect.url import ConnectUrl
from server.spark.python_functions import PythonFunctions

if TYPE_CHECKING:
    from server.spark.connect.driver import RemoteDriver

_log = structlog.get_logger()


class RemoteSpark:
    """See `spark.Spark`."""

    pause_max_s = 2.0  # short, because an attempt is cheap and subscribers wait
    pid = None

    def __init__(self, url: ConnectUrl, *, functions: PythonFunctions, conf: Mapping[str, str]) -> None:
        self._url = url
        self._functions = functions
        self._conf = conf
        self._driver: RemoteDriver | None = None

    def prepare(self) -> None:
        """Imports the libraries of the extra `connect`."""
        try:
            import server.spark.connect.messages  # noqa: F401
        except ImportError as error:
            raise EngineUnavailable(
                f"Spark Connect needs a package that is not installed: {error}", "run: pip install 'tidewire[connect]'"
            ) from error

    def start(self, stopping: threading.Event) -> RemoteDriver:
        """Does not connect to the server; the first session does."""
        from server.spark.connect.driver import RemoteDriver

        _log.info("Spark starting", remote=str(self._url))
        self._driver = driver = RemoteDriver(self._url, self._functions, self._conf)
        return driver

    def stop(self, grace_s: float) -> None:
        """Does not wait for running statements: they fail when the connection is closed."""
        if (driver := self._driver) is not None:
            driver.disconnect(grace_s)
