"""The pages for monitoring: /metrics, /healthz and /readyz."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from server.coordinator.coordinator import Coordinator
from server.http.access import is_superuser
from server.http.port import Kind, Route
from server.http.responses import text_response
from server.introspection.metrics import CONTENT_TYPE, names_objects, rendered
from server.spark import Engine


def monitoring(
    *, engine: Engine, is_listening: Callable[[], bool], registry: CollectorRegistry, coordinator: Coordinator
) -> list[Route]:
    """Returns the routes. `is_listening`: whether clients are accepted.

    The probes need no authentication: they show only whether the server works. Only superusers get the metrics of
    single objects, as only they can read the system tables with numbers of rows.
    """

    async def metrics(request: web.Request) -> web.Response:
        families = list(registry.collect())
        if not is_superuser(request, coordinator):
            families = [family for family in families if not names_objects(family)]
        text = await asyncio.to_thread(rendered, families, engine.jvm_pid)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def liveness(_: web.Request) -> web.Response:
        return text_response(200, "ok") if is_listening() else text_response(503, "clients are not accepted")

    async def readiness(_: web.Request) -> web.Response:
        if not is_listening():
            return text_response(503, "clients are not accepted")
        if (why := engine.unavailable) is not None:
            # The hint is only in the log: it may name the data directory, and this page needs no login.
            return text_response(503, f"Spark is not available: queries that need it fail. {why.message}")
        if not engine.ready:
            return text_response(503, "Spark is starting: queries that need it wait")
        return text_response(200, "ready")

    return [
        Route("/metrics", metrics),
        Route("/healthz", liveness, Kind.PUBLIC),
        Route("/readyz", readiness, Kind.PUBLIC),
    ]
