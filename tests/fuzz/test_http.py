"""Damaged requests over sockets of the HTTP port. `tests/attacks/` has slow, large and foreign ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.fuzz.mutations import damaged, damaged_json, portion, rearranged, seeded
from tests.fuzz.servers import FuzzedServer, read_until

pytestmark = pytest.mark.fuzz

HOST = b"Host: localhost"
JSON = b"Content-Type: application/json"
UPGRADE = [
    *(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13"),
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
BODIES: list[Any] = [
    {"query": "SELECT 1; SELECT k FROM t WHERE k = 1"},
    {"query": "SELECT $1::int, $2::text", "parameters": [1, "é"], "settings": {"timezone": "UTC"}},
    {
        "statements": [
            {"query": "INSERT INTO t VALUES ($1, $2)", "parameters": ["7", None]},
            {"query": "SELECT * FROM t"},
        ]
    },
    {"query": "BEGIN; INSERT INTO t VALUES (9, 'x'); ROLLBACK", "settings": {"statement_timeout": "1s"}},
    {"query": "TRUNCATE t"},
    {"query": "COPY t TO STDOUT"},
    {"query": "COPY t FROM STDIN"},
]
GETS = [
    *(b"/", b"/metrics", b"/healthz", b"/readyz", b"/api/openapi.json", b"/nothing", b"/api/sql", b"/%2e%2e/x?a=%zz"),
    b"/api/subscribe?query=t",
    b"/api/subscribe?query=SELECT%20k%20FROM%20t&envelope=upsert&key=k&progress=true&snapshot=false",
]
HEADERS = [
    *(b"Origin: http://localhost", b"Origin: null", b"Accept: application/vnd.apache.arrow.stream", b"Accept: */*"),
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 1e3"),
    *(
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Content-Encoding: gzip",
        b"Expect: 100-continue",
    ),
    *(
        b"Connection: close",
        b"Connection: keep-alive",
        b"Authorization: Basic bWF0ZXJpYWxpemU6",
        b"Authorization: Basic %%%",
    ),
    *(
        b"Last-Event-ID: x",
        b"X-Y:" + b"z" * 9_000,
        b"Cookie: a=b; c",
        b" folded",
        b"no colon",
        b": empty",
        b"A: \xff\xfe",
    ),
    *(
        HOST,
        JSON,
        b"Content-Type: text/plain; charset=x",
        b"Upgrade: h2c",
        b"Sec-WebSocket-Extensions: permessage-deflate",
    ),
]
FRAMES = [b"\x81\x80\0\0\0\0", b"\x88\x82\0\0\0\0\x03\xe8", b"\x89\x81\0\0\0\0x", b"\x01\x81\0\0\0\0x", b"\xff\xff" * 8]
SILENCE_S = 0.3


def request(random: Random) -> bytes:
    """A request of which the body, the headers or the bytes are damaged, or several ones."""
    after: list[bytes] = []
    if random.random() < 0.5:
        value = random.choice(BODIES)
        for _ in range(random.choice((0, 1, 2))):
            value = damaged_json(value, random, [*BODIES, "SELECT 2"])
        body = json.dumps(value).encode(errors="replace")
        if random.random() < 0.2:
            body = damaged(body, random)
        lines = [b"POST /api/sql HTTP/1.1", HOST, JSON]
        if random.random() < 0.2:
            half = len(body) // 2
            lines.append(b"Transfer-Encoding: chunked")
            after = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:]) if part] + [
                b"0\r\n\r\n"
            ]
            after = rearranged(after, FRAMES, random) if random.random() < 0.3 else after
        else:
            lines.append(b"Content-Length: %d" % len(body))
            after = [body]
    else:
        method = random.choice((b"GET", b"GET", b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PRI"))
        lines = [method + b" " + random.choice(GETS) + b" HTTP/1.1", HOST]
        if random.random() < 0.3:
            lines[0] = b"GET " + GETS[-2] + b" HTTP/1.1"
            lines += UPGRADE
            after = random.choices(FRAMES, k=random.randrange(4))
    lines += random.choices(HEADERS, k=random.choice((0, 0, 1, 2)))
    if random.random() < 0.25:
        lines = rearranged(lines, HEADERS, random)
    found = random.choice((b"\r\n",) * 9 + (b"\n",)).join([*lines, b"", b""]) + b"".join(after)
    return damaged(found, random) if random.random() < 0.25 else found


async def attack(port: int, data: bytes) -> bytes:
    """Sends the bytes, and closes the connection when the server has closed it or is silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        seen, _ = await read_until(reader, silence_s=SILENCE_S, whole_s=1)
        return seen
    finally:
        writer.transport.abort()


def test_damaged_requests(fuzzed: FuzzedServer) -> None:
    """Each answer is an HTTP response. None says that the server failed."""
    seen: Counter[str] = Counter()

    def check(answer: bytes) -> None:
        status = answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/1.") else "none"
        assert answer.startswith(b"HTTP/1.") or not answer
        assert status not in ("500", "501", "502"), answer
        assert b"XX000" not in answer
        seen[status] += 1

    random = seeded("http")
    count = portion(3_000)
    fuzzed.run((request(random) for _ in range(count)), fuzzed.process.http_port, attack, check)
    print(seen)
    if count >= 1_000:
        assert {"none", "101", "200", "400", "403", "404", "405", "415"} <= set(seen), seen
        assert seen["none"] < 0.5 * count
