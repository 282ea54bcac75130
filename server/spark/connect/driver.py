"""A Spark Connect server that runs outside of this process.

Every PING_S a small call in each session checks the server. It detects a server that is gone, or one that was restarted
and lost the sessions, and it prevents idle sessions from expiring (after an hour by default).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.metadata import version

import structlog

from server.spark import EngineUnavailable
from server.spark.connect.path import ConnectPath, ConnectService
from server.spark.connect.url import ConnectUrl
from server.spark.driver import SESSION_PROPERTIES
from server.spark.errors import Failure
from server.spark.python_functions import PythonFunctions
from server.spark.session_path import Disconnected, SessionPath

PING_S = 2.0

_log = structlog.get_logger()


class RemoteDriver:
    """A `spark.Driver` that ends when the server or one of the sessions is lost."""

    pid = None

    def __init__(self, url: ConnectUrl, functions: PythonFunctions, conf: Mapping[str, str]) -> None:
        self._url = url
        self._service = ConnectService(url)
        self._functions = functions
        self._settings = {**SESSION_PROPERTIES, **conf}
        self._paths: dict[str, ConnectPath] = {}
        self._lost = threading.Event()

    def path(self, slot: str) -> SessionPath:
        """EngineUnavailable if the server is unreachable, has another Spark version, or refuses the settings."""
        self._paths[slot] = path = ConnectPath(self._service)
        try:
            self._check_version(path.ping())
            path.configure(self._settings)
            path.register(self._functions)
        except Disconnected as error:
            raise EngineUnavailable(
                f"the Spark Connect server at {self._url} cannot be reached: {error}",
                "Start it, or point --spark-remote at one that runs.",
            ) from error
        except Failure as error:
            raise EngineUnavailable(
                f"the Spark Connect server at {self._url} refused a session: {error}",
                "Compare its settings with docs/cluster.md.",
            ) from error
        return path

    def _check_version(self, there: str) -> None:
        ours = version("pyspark")
        if there.split(".")[:2] != ours.split(".")[:2]:
            raise EngineUnavailable(
                f"the Spark Connect server at {self._url} is Spark {there}, and this Tidewire needs {ours}",
                f"Run a Connect server of Spark {ours}.",
            )

    def cancel_jobs(self, group: str) -> None:
        self._paths[group.partition("/")[0]].interrupt(group)

    def terminate(self) -> bool:
        """Closes the connection, so that pending calls fail. Always returns False: the cause is not known."""
        self._lost.set()
        self._service.close()
        return False

    def wait(self) -> str:
        while not self._lost.wait(PING_S):
            try:
                for path in self._paths.values():
                    path.ping()
            except (Disconnected, Failure) as error:
                return str(error)
        return "the server closed the connection during a statement"

    def disconnect(self, grace_s: float) -> None:
        """Closes the connection and releases the sessions on the server, so that they need not expire."""
        self.terminate()
        service = ConnectService(self._url)
        try:
            for path in self._paths.values():
                path.release(service, grace_s)
        except (Disconnected, Failure) as error:
            _log.debug("session not released", error=str(error))
        finally:
            service.close()

    def close(self) -> None:
        self.terminate()
