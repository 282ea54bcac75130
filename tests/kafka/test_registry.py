"""The client of the schema registry."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from catalog.objects.secrets import Secret
from protocol.avro.schema import Record, Type
from protocol.pgwire.errors import PgError
from server.ingest.kafka.registry import SCHEMA_BYTES_MAX, SchemaRegistry, Undecodable
from server.ingest.upstream import UpstreamError
from tests.fix_server import ServerThread
from tests.kafka.registry import Registry

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with Registry().serving() as serving:
        yield serving


async def test_schemas_are_fetched_once(registry: Registry) -> None:
    id = registry.register("t-value", SCHEMA)
    client = SchemaRegistry({"url": registry.url + "/"})
    assert isinstance(await client.schema(id), Record)
    assert isinstance(await client.schema(id), Record)
    assert registry.requests == {f"/schemas/ids/{id}": 1}
    assert await client.latest("t-value") is not None
    assert await client.latest("other/subject") is None


async def test_an_unknown_schema_is_asked_for_again(registry: Registry) -> None:
    client = SchemaRegistry({"url": registry.url})
    assert await client.schema(1) == Undecodable("failed to fetch Avro schema with ID 1: schema not found")
    registry.register("t-value", SCHEMA)
    assert isinstance(await client.schema(1), Record)


async def test_the_schemas_that_are_kept_are_limited_by_their_size(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [registry.register("t-value", {**SCHEMA, "doc": f"{number}" * 100}) for number in range(1, 5)]
    monkeypatch.setattr("server.ingest.kafka.registry.CACHE_BYTES_MAX", 3 * len(registry.schemas[ids[0]]))
    client, made = SchemaRegistry({"url": registry.url}), []

    def make(schema: Type) -> int:
        made.append(schema)
        return len(made)

    known = await client.decoders([-1, *ids[:3]], {}, make)
    assert await client.decoders(ids[:3], known, make) == known == {id: n for n, id in enumerate(ids[:3], 1)}
    assert await client.decoders(ids[3:], known, make) == {**known, ids[3]: 4}
    assert await client.decoders(ids[3:], known, make) == {ids[3]: 5}  # the cache has forgotten the others
    with pytest.raises(UpstreamError, match=r"the schemas of a few messages, in registry .*, have more than"):
        await client.decoders(ids, {}, make)


async def test_schemas_that_cannot_be_used(registry: Registry) -> None:
    registry.schemas = {1: "{", 2: " " * SCHEMA_BYTES_MAX}
    registry.subjects = {"t-value": [1]}
    client = SchemaRegistry({"url": registry.url})
    for id, reason in ((1, "schema is not valid JSON"), (2, "the registry's answer contains no schema")):
        found = await client.schema(id)
        assert isinstance(found, Undecodable)
        assert found.reason.startswith(f"failed to use Avro schema with ID {id}: {reason}")
    with pytest.raises(PgError, match='schema of subject "t-value" cannot be used'):
        await client.latest("t-value")


async def test_a_wrong_password_is_refused_and_not_shown(registry: Registry) -> None:
    registry.login = ("user", "right")
    registry.register("t-value", SCHEMA)
    right = SchemaRegistry({"url": registry.url, "username": "user", "password": Secret("right")})
    assert isinstance(await right.schema(1), Record)
    wrong = SchemaRegistry({"url": registry.url, "username": "user", "password": Secret("hidden")})
    with pytest.raises(UpstreamError, match="refused access") as error:
        await wrong.schema(1)
    assert "hidden" not in f"{error.value} {error.value.hint}"


async def test_connections_are_validated(registry: Registry, passing_server: ServerThread) -> None:
    registry.login = ("user", "right")
    async with await psycopg.AsyncConnection.connect(passing_server.dsn(), autocommit=True) as connection:

        async def refused(statement: str) -> str:
            with pytest.raises(psycopg.OperationalError) as error:
                await connection.execute(statement.encode())
            assert error.value.diag.sqlstate == "08006"
            assert "hidden" not in str(error.value)
            return str(error.value.diag.message_primary)

        await connection.execute("CREATE SECRET p AS 'hidden'")
        create = f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}', USERNAME 'user', "
        create += "PASSWORD SECRET p) WITH (VALIDATE)"
        assert "refused access" in await refused(create)
        await connection.execute("ALTER SECRET p AS 'right'")
        await connection.execute(create.encode())
        await connection.execute("VALIDATE CONNECTION r")
        alter = f"ALTER CONNECTION r SET (URL '{registry.url}/nothing') WITH (VALIDATE)"
        assert "is not the address of a schema registry" in await refused(alter)
        registry.failure = 500
        assert "answered with status 500" in await refused("VALIDATE CONNECTION r")


@pytest.mark.parametrize("url", ["", "ftp://x", "localhost:8081"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(PgError, match="must be an http or https URL"):
        SchemaRegistry({"url": url})


async def test_a_registry_that_is_down() -> None:
    async with Registry().serving() as serving:
        client = SchemaRegistry({"url": serving.url})
    with pytest.raises(UpstreamError, match="could not connect to schema registry"):
        await client.schema(1)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address, and its key."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *names, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


async def test_tls_needs_the_authority_of_the_certificate(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    registry = Registry()
    registry.register("t-value", SCHEMA)
    async with registry.serving(context):
        trusting = SchemaRegistry({"url": registry.url, "ssl certificate authority": certificate[0].read_text()})
        assert isinstance(await trusting.schema(1), Record)
        with pytest.raises(UpstreamError, match="could not connect to schema registry"):
            await SchemaRegistry({"url": registry.url}).schema(1)
    with pytest.raises(PgError, match="certificate or key of a connection to a schema registry is invalid"):
        SchemaRegistry({"url": registry.url, "ssl certificate authority": "no certificate"})


@pytest.mark.parametrize("id", [-1, 2**31, 2**70, 1.5, "1", None])
async def test_ids_that_no_message_can_have(registry: Registry, monkeypatch: pytest.MonkeyPatch, id: object) -> None:
    monkeypatch.setattr(registry, "register", lambda *_: id)
    with pytest.raises(UpstreamError, match="answered without the id of a schema"):
        await SchemaRegistry({"url": registry.url}).register("t", json.dumps(SCHEMA))


async def test_schemas_are_registered(registry: Registry) -> None:
    client, schema = SchemaRegistry({"url": registry.url}), json.dumps(SCHEMA)
    assert await client.is_compatible("t/value", schema)
    id = await client.register("t/value", schema)
    assert await client.register("t/value", schema) == id
    assert isinstance(await client.schema(id), Record)
    assert await client.is_compatible("t/value", schema)
    registry.closed.add("t/value")
    assert not await client.is_compatible("t/value", schema)
    with pytest.raises(PgError, match="incompatible with the earlier versions") as caught:
        await client.register("t/value", schema)
    assert (caught.value.sqlstate, caught.value.hint is not None) == ("55000", True)
    registry.failure = 503
    with pytest.raises(UpstreamError, match="answered with status 503"):
        await client.register("t/value", schema)
