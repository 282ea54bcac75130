"""The components of one server, and their start and shutdown."""

from __future__ import annotations

import asyncio

import structlog

from protocol.pgwire.errors import PgError
from server.config import Config
from server.coordinator.coordinator import Coordinator
from server.dataflow.arrangements import run_files
from server.evaluation.evaluator import Evaluator
from server.frontend.listener import Listener
from server.introspection.http import HttpPort, Response
from server.introspection.metrics import rendered, snapshot
from server.introspection.system_tables import SYSTEM_TABLES
from server.pg_catalog.engine import CatalogEngine
from server.pg_catalog.rows import no_rows
from server.runtime.counters import Counters
from server.spark import Engine, EngineUnavailable
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.spark.measured_engine import MeasuredEngine
from server.sql.functions import worker

log = structlog.get_logger()


class App:
    """One server. The constructor opens the data directory (StoreError); `start` starts everything else."""

    def __init__(self, config: Config, engine: Engine | None = None) -> None:
        self._config = config
        engine = engine or SparkEngine(
            master=config.spark_master,
            remote=config.spark_remote,
            memory_mb=config.spark_memory,
            conf=config.spark_conf,
            directory=config.data_dir,
            archive=default_archive_directory(),
            functions={**worker.udfs(), **run_files.FUNCTIONS},
        )
        counters = Counters()
        self.engine: Engine = MeasuredEngine(engine, counters)
        self.coordinator = Coordinator(
            config.data_dir,
            engine=self.engine,
            counters=counters,
            interval_s=config.timestamp_interval,
            system_tables=SYSTEM_TABLES,
            arrangement_directory=config.arrangement_directory,
        )
        self.evaluator = Evaluator()
        self.catalog_engine = CatalogEngine(no_rows)
        self.listener = Listener(self.coordinator, self.engine, self.evaluator, self.catalog_engine)
        pages = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self.http = HttpPort(pages, host_names=config.http_names)
        self.ended: asyncio.Future[BaseException] = self.coordinator.failed
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the coordinator, and Spark in the background. Statements that need no computation run meanwhile."""
        self._starting = asyncio.create_task(self._start_engine())
        await self.coordinator.start()

    async def _start_engine(self) -> None:
        """Waits until Spark has started, after any number of attempts, and warms it up."""
        while True:
            try:
                await self.engine.start()
                await self.evaluator.prepare()
                await self.catalog_engine.prepare()
                await self.engine.warm_up()
                return
            except EngineUnavailable:
                pass  # the engine has logged the cause and tries again
            except PgError as error:  # Spark was lost during the warm-up and several restarts failed
                log.warning("engine not warmed up", reason=error.message)
                return

    async def listen(self) -> tuple[str, int]:
        return await self.listener.listen(self._config.host, self._config.port)

    async def listen_http(self) -> tuple[str, int] | None:
        """Returns the address of the HTTP port; None if HTTP is off."""
        address = self._config.http_address
        return None if address is None else await self.http.listen(*address)

    async def _metrics(self) -> Response:
        metrics = snapshot(self.coordinator, self.engine, self.listener.clients.buffered_bytes)
        text, content_type = await asyncio.to_thread(rendered, metrics, self.engine.jvm_pid)
        return Response("200 OK", text, content_type)

    async def _healthz(self) -> Response:
        if self.listener.is_listening:
            return Response.of("200 OK", "ok")
        return Response.of("503 Service Unavailable", "clients are not accepted")

    async def _readyz(self) -> Response:
        if not self.listener.is_listening:
            return Response.of("503 Service Unavailable", "clients are not accepted")
        if (why := self.engine.unavailable) is not None:
            text = f"Spark is not available: queries that need it fail. {why.message} ({why.hint})"
            return Response.of("503 Service Unavailable", text)
        if not self.engine.ready:
            return Response.of("503 Service Unavailable", "Spark is starting: queries that need it wait")
        return Response.of("200 OK", "ready")

    async def close(self, grace_s: float) -> None:
        await self.http.close()
        await self.listener.close(grace_s)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self.evaluator.close()
        await self.catalog_engine.close()
        await self.coordinator.close()
        await self.engine.close()
