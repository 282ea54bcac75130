"""The components of one server, and their start and shutdown."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from catalog.persistence import salt_key
from protocol.pgwire.errors import PgError
from server.authentication.access import Access, check_config
from server.authentication.first_password import set_first_password
from server.config import Config
from server.coordinator.coordinator import Coordinator
from server.coordinator.tasks import BackgroundTasks
from server.dataflow.arrangements import run_files
from server.egress.sinks import Sinks
from server.evaluation.evaluator import Evaluator
from server.frontend.listener import Listener
from server.ingest.sources import Sources
from server.introspection.metrics import ServerCollector
from server.introspection.sink_tables import sink_tables
from server.introspection.source_tables import source_tables
from server.introspection.system_tables import SYSTEM_TABLES
from server.pg_catalog.engine import CatalogEngine
from server.pg_catalog.rows import no_rows
from server.runtime.freed_memory import return_periodically
from server.runtime.metrics import Metrics
from server.spark import Engine, EngineUnavailable
from server.spark.embedded.jvm import default_archive_directory
from server.spark.engine import SparkEngine
from server.spark.measured_engine import MeasuredEngine
from server.sql.functions import worker

if TYPE_CHECKING:
    from server.http.port import HttpPort

log = structlog.get_logger()


class App:
    """One server. The constructor opens the data directory (StoreError); `start` starts everything else.

    AccessError if the rules, the certificates or the password file cannot be used.
    """

    def __init__(self, config: Config, engine: Engine | None = None) -> None:
        self._config = config
        check_config(config.access)
        if config.superuser_password_file is not None:
            set_first_password(config.data_dir, config.superuser_password_file)
        engine = engine or SparkEngine(
            master=config.spark_master,
            remote=config.spark_remote,
            memory_mb=config.spark_memory,
            conf=config.spark_conf,
            directory=config.data_dir,
            archive=default_archive_directory(),
            functions={**worker.udfs(), **run_files.FUNCTIONS},
        )
        metrics = Metrics()
        self.engine: Engine = MeasuredEngine(engine, metrics)
        self.coordinator = Coordinator(
            config.data_dir,
            engine=self.engine,
            metrics=metrics,
            interval_s=config.timestamp_interval,
            system_tables={
                **SYSTEM_TABLES,
                **source_tables(lambda: self.sources.running),
                **sink_tables(lambda: self.sinks.running),
            },
            arrangement_directory=config.arrangement_directory,
        )
        self.sources = Sources(self.coordinator, self.engine)
        self.sinks = Sinks(self.coordinator)
        self.coordinator.restoring.append(self.sinks.hold)
        self.evaluator = Evaluator()
        self.catalog_engine = CatalogEngine(no_rows)
        self.access = Access(
            config.access,
            salt_key=salt_key(self.coordinator.store),
            failures_max=lambda: int(self.coordinator.setting("failed_logins_max")),
            clock=time.monotonic,
            now_us=lambda: time.time_ns() // 1_000,
        )
        self.access.loaded = self.coordinator.activity.configured
        self.listener = Listener(self.coordinator, self.engine, self.evaluator, self.catalog_engine, self.access)
        collector = ServerCollector(
            coordinator=self.coordinator,
            engine=self.engine,
            sources=self.sources,
            sinks=self.sinks,
            buffered_bytes=lambda: self.listener.clients.buffered_bytes,
        )
        metrics.registry.register(collector)
        self._http: HttpPort | None = None
        self.failed: asyncio.Future[BaseException] = self.coordinator.failed
        self._tasks = BackgroundTasks()

    async def start(self) -> None:
        """Starts the coordinator, and Spark in the background. Statements that need no computation run meanwhile.

        StoreError or MustEnd if the coordinator's first commits fail.
        """
        self._tasks.start(self._start_engine(), "start of Spark")
        self._tasks.start(return_periodically(), "return of freed memory")
        await self.coordinator.start()
        self.access.warn_without_passwords(self.coordinator.state)
        self.sources.start()
        self.sinks.start()

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
                log.warning("Spark not warmed up", reason=error.message)
                return

    async def listen(self) -> tuple[str, int]:
        return await self.listener.listen(self._config.host, self._config.port)

    async def listen_http(self) -> tuple[str, int] | None:
        """Returns the address of the HTTP port; None if HTTP is off."""
        if (address := self._config.http_address) is None:
            return None
        # Imported here because the import takes 0.2 s, in which the JVM starts and clients can already connect.
        from server.http.access import http_access
        from server.http.api import api
        from server.http.files import files
        from server.http.monitoring import monitoring
        from server.http.port import HttpPort
        from server.http.request_limits import RequestLimits

        limits = RequestLimits()
        pages = monitoring(
            engine=self.engine,
            is_listening=lambda: self.listener.is_listening,
            registry=self.coordinator.metrics.registry,
            coordinator=self.coordinator,
        )
        self._http = HttpPort(
            [*pages, *files(), *api(self.listener.sessions, self.listener.clients, limits)],
            host_names=self._config.http_names,
            origins=self._config.http_origins,
            check=http_access(self.access, self.coordinator),
            tls=lambda: self.access.tls.http_context if self.access.tls is not None else None,
            limits=limits,
        )
        return await self._http.listen(*address)

    async def close(self, grace_s: float) -> None:
        if self._http is not None:
            await self._http.close()
        await self.listener.close(grace_s)
        await self._tasks.stop()
        await self.evaluator.close()
        await self.catalog_engine.close()
        await self.sources.close()
        await self.sinks.close()
        await self.coordinator.close()
        await self.engine.close()
