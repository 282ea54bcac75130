"""The options of connections to PostgreSQL, and that errors and representations contain no secret."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.secrets import Secret
from protocol.pgwire.errors import PgError
from server.ingest.postgres.connection import KEEPALIVES, Server
from server.ingest.postgres.replication import Replication
from server.ingest.upstream import UpstreamError
from tests.server.ingest.postgres.harness import definition, running

PASSWORD = "battery-staple"
OPTIONS: dict[str, str | Secret] = {"host": "127.0.0.1", "port": "1", "database": "d", "password": Secret(PASSWORD)}

TLS = Path(__file__).parents[3] / "data" / "tls"

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUYjT0
-----END CERTIFICATE-----
"""


def test_no_representation_shows_the_password() -> None:
    server = Server.of(OPTIONS)
    assert str(server) == 'PostgreSQL "127.0.0.1:1", database "d"'
    assert PASSWORD not in repr(server)
    assert server.password == PASSWORD


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": ""}, "connection option HOST is required"),
        ({"port": "x"}, 'invalid port "x"'),
        ({"port": "65536"}, 'invalid port "65536"'),
        ({"ssl mode": "maybe"}, 'invalid SSL MODE "maybe"'),
        ({"nope": "1"}, "invalid connection option NOPE"),
        ({"ssl key": "x"}, "SSL CERTIFICATE and SSL KEY must be given together"),
        ({"ssl mode": "require", "ssl certificate authority": "x"}, "invalid SSL certificate or key"),
        ({"ssl mode": "require", "ssl certificate": CERTIFICATE, "ssl key": "x"}, "invalid SSL certificate or key"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(PgError) as error:
        Server.of({**OPTIONS, **options})
    assert (error.value.sqlstate, error.value.message) == ("22023", message)


@pytest.mark.parametrize(
    ("mode", "verifies", "checks_host"),
    [
        ("require", ssl.CERT_NONE, False),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("VERIFY_FULL", ssl.CERT_REQUIRED, True),
    ],
)
def test_modes_of_tls(mode: str, verifies: ssl.VerifyMode, checks_host: bool) -> None:
    context = Server.of({**OPTIONS, "ssl mode": mode}).ssl()
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (verifies, checks_host)


def test_modes_without_a_context() -> None:
    assert Server.of({**OPTIONS, "ssl mode": "disable"}).ssl() is False
    assert Server.of(OPTIONS).ssl() == "prefer"


async def test_a_server_that_cannot_be_reached() -> None:
    with pytest.raises(UpstreamError) as error:
        await Replication.open(Server.of(OPTIONS))
    server = 'PostgreSQL "127.0.0.1:1", database "d"'
    assert error.value.message == f'could not connect to {server} as user "postgres": Connection refused'
    assert error.value.hint == "Is the server running on that host and accepting TCP/IP connections?"


async def test_a_server_without_tls_is_refused_if_it_is_required(logical: str) -> None:
    port = logical.rsplit(":", 1)[1].split("/")[0]
    server = Server.of({"host": "127.0.0.1", "port": port, "database": "postgres", "ssl mode": "require"})
    with pytest.raises(UpstreamError, match="SSL"):
        await server.connect()


@asynccontextmanager
async def tls_proxy(dsn: str) -> AsyncIterator[int]:
    """The port of a proxy that speaks TLS as PostgreSQL does. Its certificate in tests/data/tls is for `localhost`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.crt", TLS / "server.key")

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            assert (await reader.readexactly(8))[4:] == b"\x04\xd2\x16\x2f", "no SSLRequest"
            writer.write(b"S")
            await writer.start_tls(context)
            port = int(dsn.rsplit(":", 1)[1].split("/")[0])
            plain, upstream = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(copied(reader, upstream), copied(plain, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has closed
        finally:
            writer.close()
            if upstream is not None:
                upstream.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_source_over_tls(tmp_path: Path, source_database: tuple[str, Any]) -> None:
    dsn, upstream = source_database
    await upstream.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    await upstream.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    async with tls_proxy(dsn) as port:
        found = definition(dsn)
        options = {"host": "localhost", "port": str(port), "ssl mode": "verify-full"}
        with pytest.raises(UpstreamError, match="certificate"):
            await Server.of({**found.connection, **options}).connect()
        authority = (TLS / "server.crt").read_text()
        trusted = {**found.connection, **options, "ssl certificate authority": authority}
        async with running(tmp_path, replace(found, connection=trusted)) as source:
            await upstream.execute("UPDATE t SET id = 2")
            await source.reached(upstream)
            assert await source.rows("t") == [(2,)]


async def test_the_system_probes_a_server_that_sends_nothing(logical: str) -> None:
    port = logical.rsplit(":", 1)[1].split("/")[0]
    connection = await Server.of({"host": "127.0.0.1", "port": port, "database": "postgres"}).connect()
    try:
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in KEEPALIVES}
        assert options == KEEPALIVES
    finally:
        await connection.close()
