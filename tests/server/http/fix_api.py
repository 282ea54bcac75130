"""A client of the HTTP API for the tests."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    name: str
    data: Any
    id: str | None


class Api:
    """Requests to the port. `user`: None without credentials."""

    def __init__(self, port: int, user: str | None = None, password: str = "") -> None:
        self.port = port
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.headers = {} if user is None else {"Authorization": f"Basic {token}"}

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {**self.headers, **named})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def post(self, body: object, path: str = "/api/sql", **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, **{"Content_Type": "application/json", **headers})

    def sql(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """The results. AssertionError if the status is not 200."""
        reply = self.post({"query": query, **({"parameters": parameters} if parameters else {})})
        assert reply.status == 200, reply
        results: list[dict[str, Any]] = reply.json["results"]
        return results

    def rows(self, query: str, *parameters: object) -> list[list[Any]]:
        rows: list[list[Any]] = self.sql(query, *parameters)[-1]["rows"]
        return rows

    def events(self, query: str, headers: Mapping[str, str] | None = None, **parameters: str) -> EventStream:
        return EventStream(self.port, query, {**self.headers, **(headers or {})}, parameters)


class EventStream:
    """The events of GET /api/subscribe. `status` and, if it is not 200, `error`."""

    def __init__(self, port: int, query: str, headers: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        path = "/api/subscribe?" + urlencode({"query": query, **parameters})
        self._connection.request("GET", path, headers=dict(headers))
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.error = json.loads(self._response.read())["error"] if self.status != 200 else None

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in self._response:
            if line == b"\n":
                yield Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
                fields = {}
            else:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                fields[name] = value

    def close(self) -> None:
        self._response.close()
        sock: socket.socket | None = self._connection.sock
        if sock is not None:
            sock.close()
        self._connection.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
