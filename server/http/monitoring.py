"""The pages of the HTTP port: /metrics, /healthz and /readyz."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry

from server.introspection.http import text_response
from server.introspection.metrics import CONTENT_TYPE, rendered
from server.spark import Engine

PUBLIC_PAGES = ("/healthz", "/readyz")
"""Probes, which need no authentication: they show only whether the server works."""


def monitoring_pages(
    *, engine: Engine, is_listening: Callable[[], bool], registry: CollectorRegistry
) -> Mapping[str, Callable[[web.Request], Awaitable[web.Response]]]:
    """Returns the pages by path. `is_listening`: whether clients are accepted."""

    async def page_of_metrics(_: web.Request) -> web.Response:
        families = list(registry.collect())
        text = await asyncio.to_thread(rendered, families, engine.jvm_pid)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def page_of_liveness(_: web.Request) -> web.Response:
        return text_response(200, "ok") if is_listening() else text_response(503, "clients are not accepted")

    async def page_of_readiness(_: web.Request) -> web.Response:
        if not is_listening():
            return text_response(503, "clients are not accepted")
        if (why := engine.unavailable) is not None:
            text = f"Spark is not available: queries that need it fail. {why.message} ({why.hint})"
            return text_response(503, text)
        if not engine.ready:
            return text_response(503, "Spark is starting: queries that need it wait")
        return text_response(200, "ready")

    return {"/metrics": page_of_metrics, "/healthz": page_of_liveness, "/readyz": page_of_readiness}
