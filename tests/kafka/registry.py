"""A schema registry for tests, with the part of Confluent's interface that readers and producers use."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Registry:
    """Schemas by id and by subject. `references`: of the schemas that have any, by id.

    `requests` counts the requests per path. `failure`: a status for all requests. `closed`: subjects that accept no
    further schemas.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.references: dict[int, list[dict[str, Any]]] = {}
        self.requests: dict[str, int] = {}
        self.failure: int | None = None
        self.closed: set[str] = set()
        self.login: tuple[str, str] | None = None
        self.url = ""

    def register(self, subject: str, schema: str | Mapping[str, Any]) -> int:
        """Adds a version to a subject and returns the schema's id. Equal schemas have one id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        id = next((id for id, known in self.schemas.items() if known == text), len(self.schemas) + 1)
        self.schemas[id] = text
        versions = self.subjects.setdefault(subject, [])
        if id not in versions:
            versions.append(id)
        return id

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Registry]:
        app = web.Application(middlewares=[self._checked])
        app.router.add_get("/subjects", self._subjects)
        app.router.add_get("/schemas/ids/{id}", self._schema)
        app.router.add_get("/subjects/{subject}/versions/latest", self._latest)
        app.router.add_get("/subjects/{subject}/versions/{version}", self._version)
        app.router.add_post("/subjects/{subject}/versions", self._register)
        app.router.add_post("/compatibility/subjects/{subject}/versions/latest", self._compatibility)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests[request.path] = self.requests.get(request.path, 0) + 1
        if self.failure is not None:
            return web.json_response({"error_code": self.failure, "message": "injected"}, status=self.failure)
        if self.login is not None:
            expected = base64.b64encode(":".join(self.login).encode()).decode()
            if request.headers.get("Authorization") != f"Basic {expected}":
                return web.json_response({"error_code": 401, "message": "Unauthorized"}, status=401)
        found: web.StreamResponse = await handler(request)
        return found

    async def _subjects(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(sorted(self.subjects))

    async def _schema(self, request: web.Request) -> web.StreamResponse:
        id = int(request.match_info["id"])
        if id not in self.schemas:
            return web.json_response({"error_code": 40403, "message": f"Schema {id} not found"}, status=404)
        references = {"references": self.references[id]} if id in self.references else {}
        return web.json_response({"schema": self.schemas[id], **references})

    async def _latest(self, request: web.Request) -> web.StreamResponse:
        subject = request.match_info["subject"]
        versions = self.subjects.get(subject)
        if not versions:
            return web.json_response({"error_code": 40401, "message": f"Subject {subject!r} not found."}, status=404)
        id = versions[-1]
        return web.json_response({"subject": subject, "version": len(versions), "id": id, "schema": self.schemas[id]})

    async def _version(self, request: web.Request) -> web.StreamResponse:
        versions = self.subjects.get(request.match_info["subject"], [])
        number = int(request.match_info["version"])
        if not 0 < number <= len(versions):
            return web.json_response({"error_code": 40402, "message": "Version not found."}, status=404)
        return web.json_response({"version": number, "schema": self.schemas[versions[number - 1]]})

    async def _compatibility(self, request: web.Request) -> web.StreamResponse:
        subject = request.match_info["subject"]
        if subject not in self.subjects and subject not in self.closed:
            return web.json_response({"error_code": 40401, "message": f"Subject {subject!r} not found."}, status=404)
        return web.json_response({"is_compatible": subject not in self.closed})

    async def _register(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.match_info["subject"] in self.closed:
            return web.json_response({"error_code": 409, "message": "incompatible"}, status=409)
        id = self.register(request.match_info["subject"], body["schema"])
        if "references" in body:
            self.references[id] = body["references"]
        return web.json_response({"id": id})


class RegistryThread:
    """A registry with an event loop in a thread of its own: a context manager, for tests that are not async."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._registry = Registry()
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), name="registry")

    async def _serve(self) -> None:
        async with self._registry.serving(self._tls):
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Registry:
        self._thread.start()
        self._ready.wait()
        return self._registry

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()
