"""A Spark that somebody else runs, reached over Spark Connect.

The server is watched by a small call in each session every PING_S: it tells of a server that has gone, and of one that
was started anew and knows our sessions no more; it keeps idle sessions from expiring (after an hour, by default).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.metadata import version

import structlog

from server.connect_url import ConnectUrl
from server.spark import EngineUnavailable
from server.spark.arrow_path import Disconnected, SessionPath
from server.spark.connect_messages import messages
from server.spark.connect_path import ConnectPath, ConnectService
from server.spark.errors import Failure
from server.spark.python_functions import PythonFunctions
from server.spark.spark import SESSION_PROPERTIES

PING_S = 2.0

_log = structlog.get_logger()


class RemoteDriver:
    """One life of the server, as far as we see it; see `spark.Driver`."""

    pid = None

    def __init__(self, url: ConnectUrl, functions: PythonFunctions, conf: Mapping[str, str]) -> None:
        self._url = url
        self._service = ConnectService(url)
        self._functions = functions
        self._settings = {**SESSION_PROPERTIES, **conf}
        self._paths: dict[str, ConnectPath] = {}
        self._lost = threading.Event()

    def path(self, slot: str) -> SessionPath:
        """EngineUnavailable when the server is not there, is another Spark, or refuses what we need."""
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
        path = self._paths[group.partition("/")[0]]
        threading.Thread(target=path.interrupt, name=f"tidewire-cancel-{group}", args=(group,), daemon=True).start()

    def fell(self) -> bool:
        """Hangs up, so that whatever still waits for an answer learns of it."""
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
        return "it hung up in the middle of a statement"

    def leave(self, grace_s: float) -> None:
        """Hangs up, and tells the server that our sessions are not used again, so that it need not wait for them."""
        self.fell()
        service = ConnectService(self._url)
        try:
            for path in self._paths.values():
                path.release(service, grace_s)
        except (Disconnected, Failure) as error:
            _log.debug("session not released", error=str(error))
        finally:
            service.close()

    def close(self) -> None:
        self.fell()


class RemoteSpark:
    """See `spark.Spark`."""

    pause_max_s = 2.0  # a try costs nothing, and subscribers wait
    pid = None

    def __init__(self, url: ConnectUrl, *, functions: PythonFunctions, conf: Mapping[str, str]) -> None:
        self._url = url
        self._functions = functions
        self._conf = conf
        self._driver: RemoteDriver | None = None

    def prepare(self) -> None:
        messages()

    def start(self, stopping: threading.Event) -> RemoteDriver:
        """Does not reach for the server: the first session does."""
        _log.info("engine starting", remote=str(self._url))
        self._driver = driver = RemoteDriver(self._url, self._functions, self._conf)
        return driver

    def stop(self, grace_s: float) -> None:
        """Does not wait for statements: whoever asked has been told."""
        if (driver := self._driver) is not None:
            driver.leave(grace_s)
