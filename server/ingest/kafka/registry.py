"""A client of a Confluent schema registry."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from catalog.objects.secrets import Secret
from protocol.avro.schema import SchemaError, Type, parse_schema
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.upstream import UpstreamError

REQUEST_S = 10.0
SCHEMA_BYTES_MAX = 4 * 1024 * 1024
ID_MAX = 2**31 - 1  # of a schema, which has four bytes in a message
TYPE_MAX = 100  # characters of an unknown type of schemas that are shown
Made = TypeVar("Made")

SCHEMAS_MAX = 1_000  # of one client; a topic with more schema ids has messages that are no Avro
CACHE_BYTES_MAX = 8 * 1024 * 1024  # of the texts of these schemas; parsed, they take about twenty times as much memory


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A schema id without a usable schema, and the reason."""

    reason: str


class SchemaRegistry:
    """Fetches and registers schemas. Schemas never change, so they are cached; a missing one is not."""

    def __init__(self, options: Mapping[str, str | Secret]) -> None:
        """`options`: those of CREATE CONNECTION ... TO CONFLUENT SCHEMA REGISTRY. PgError if they are invalid."""
        values = {name: _revealed(value) for name, value in options.items()}
        self.url = values.get("url", "").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "option URL of a connection to a schema registry must be an http or https URL",
            )
        user = values.get("username")
        password = values.get("password", "")
        # A compressed answer would take a thousand times the memory of its bytes.
        self._headers = {"Accept-Encoding": "identity"}
        if user is not None:
            self._headers["Authorization"] = aiohttp.encode_basic_auth(user, password)
        self._tls = _tls(values) if self.url.startswith("https://") else None
        self._schemas: dict[int, Type | Undecodable] = {}
        self._sizes: dict[int, int] = {}  # of their texts

    async def schema(self, id: int) -> Type | Undecodable:
        """The schema with an id. UpstreamError if the registry cannot be asked."""
        found = self._schemas.get(id)
        if found is not None:
            return found
        body = await self._get(f"/schemas/ids/{id}")
        if body is None:
            return Undecodable(f"failed to fetch Avro schema with ID {id}: schema not found")
        found = await asyncio.to_thread(_parsed, body)
        if isinstance(found, Undecodable):
            found = Undecodable(f"failed to use Avro schema with ID {id}: {found.reason}")
        text = body.get("schema") if isinstance(body, dict) else None
        size = len(text) if isinstance(text, str) else 0
        if len(self._schemas) >= SCHEMAS_MAX or sum(self._sizes.values()) + size > CACHE_BYTES_MAX:
            self._schemas.clear()
            self._sizes.clear()
        self._schemas[id], self._sizes[id] = found, size
        return found

    async def decoders(
        self,
        ids: Iterable[int],
        known: Mapping[int, Made | Undecodable],
        make: Callable[[Type], Made | Undecodable],
    ) -> dict[int, Made | Undecodable]:
        """What `make` returns for the schemas with these ids, which may be -1 for none. It runs in a thread.

        `known`: what was made before. Of this, what is not needed is forgotten when the cache has forgotten its schema.
        UpstreamError if the registry cannot be asked, or the schemas have more than CACHE_BYTES_MAX together.
        """
        found: dict[int, Made | Undecodable] = {
            id: made for id, made in known.items() if id in self._schemas and not isinstance(made, Undecodable)
        }
        size = 0
        for id in ids:
            if id < 0:
                continue
            if id not in found:
                schema = await self.schema(id)
                found[id] = schema if isinstance(schema, Undecodable) else await asyncio.to_thread(make, schema)
            size += self._sizes.get(id, 0)
            if size > CACHE_BYTES_MAX:
                raise UpstreamError(
                    f'the schemas of a few messages, in registry "{self.url}", have more than {CACHE_BYTES_MAX} bytes'
                )
        return found

    async def latest(self, subject: str) -> str | None:
        """The text of a subject's latest schema; None if there is no such subject. PgError if it cannot be used."""
        body = await self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if body is None:
            return None
        found = await asyncio.to_thread(_parsed, body)
        if isinstance(found, Undecodable):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'schema of subject "{subject}" cannot be used',
                detail=found.reason,
                hint="Register a schema of Avro under this subject.",
            )
        assert isinstance(body, dict)
        return str(body["schema"])

    async def validate(self) -> None:
        """UpstreamError if the registry cannot be reached, or refuses access."""
        if await self._get("/subjects") is None:
            raise UpstreamError(
                f'"{self.url}" is not the address of a schema registry', "Check the path in URL of the connection."
            )

    async def is_compatible(self, subject: str, schema: str) -> bool:
        """Whether `register` accepts a schema. UpstreamError if the registry cannot be asked."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest"
        found = await self._request("POST", path, {"schema": schema})
        return found is None or not isinstance(found, dict) or found.get("is_compatible") is not False

    async def register(self, subject: str, schema: str) -> int:
        """Adds a version to a subject, unless it has an equal one. Returns the schema's id. PgError if refused."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = await self._request("POST", path, {"schema": schema}, refused=(409, 422))
        if found is None:
            raise incompatible(subject)
        id = found.get("id") if isinstance(found, dict) else None
        if not isinstance(id, int) or not 0 <= id <= ID_MAX:
            raise UpstreamError(f'schema registry "{self.url}" answered without the id of a schema')
        return id

    async def _get(self, path: str) -> object:
        """The JSON of an answer; None for 404."""
        return await self._request("GET", path)

    async def _request(
        self, method: str, path: str, body: object = None, *, refused: tuple[int, ...] = (404,)
    ) -> object:
        """The JSON of an answer; None if its status is one of `refused`."""
        try:
            timeout = aiohttp.ClientTimeout(total=REQUEST_S)
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=timeout, auto_decompress=False) as session,
                session.request(
                    method, self.url + path, json=body, ssl=self._tls or True, allow_redirects=False
                ) as response,
            ):
                if response.status in refused:
                    return None
                if response.status in (401, 403):
                    raise UpstreamError(
                        f'schema registry "{self.url}" refused access',
                        "Check USERNAME and PASSWORD of the connection.",
                    )
                if response.status != 200:
                    raise UpstreamError(f'schema registry "{self.url}" answered with status {response.status}')
                encoding = response.headers.get("Content-Encoding", "identity")
                if encoding.lower() != "identity":
                    raise UpstreamError(
                        f'schema registry "{self.url}" answered with content encoding "{encoding[:TYPE_MAX]}"',
                        "Let the registry, or the proxy in front of it, answer without compression.",
                    )
                data = await response.content.read(SCHEMA_BYTES_MAX + 1)
                while len(data) <= SCHEMA_BYTES_MAX and (more := await response.content.read(SCHEMA_BYTES_MAX)):
                    data += more
                if len(data) > SCHEMA_BYTES_MAX:
                    return {"schema": None}
                return await asyncio.to_thread(json.loads, data)
        except aiohttp.ClientConnectorCertificateError as error:
            found = error.certificate_error
            reason = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else "unknown reason"
            raise UpstreamError(
                f'could not connect to schema registry "{self.url}": certificate verify failed: {reason}',
                "Check the certificate of the registry, and SSL CERTIFICATE AUTHORITY of the connection.",
            ) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UpstreamError(
                f'could not connect to schema registry "{self.url}": {type(error).__name__}',
                "Check that the registry runs, and URL and certificates of the connection.",
            ) from None
        except (ValueError, RecursionError):
            raise UpstreamError(f'schema registry "{self.url}" answered with something other than JSON') from None


def incompatible(subject: str) -> PgError:
    """The registry does not accept a schema as the next version of a subject."""
    return PgError(
        SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
        f'the schema is incompatible with the earlier versions of subject "{subject}"',
        hint="Use another topic, change the columns, or change the compatibility level of the subject in the registry.",
    )


def _parsed(body: object) -> Type | Undecodable:
    text = body.get("schema") if isinstance(body, dict) else None
    if not isinstance(text, str):
        return Undecodable("the registry's answer contains no schema")
    if isinstance(body, dict) and body.get("schemaType", "AVRO") != "AVRO":
        return Undecodable(f"the schema is not Avro but {str(body['schemaType'])[:TYPE_MAX]}")
    try:
        return parse_schema(text)
    except SchemaError as error:
        return Undecodable(str(error))


def _revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _tls(values: Mapping[str, str]) -> ssl.SSLContext:
    """The certificates of the options, which are texts in PEM."""
    try:
        context = ssl.create_default_context(cadata=values.get("ssl certificate authority"))
        if "ssl certificate" in values:
            _load_certificate(context, values["ssl certificate"], values.get("ssl key", ""))
        return context
    except (ssl.SSLError, OSError, ValueError):
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE, "certificate or key of a connection to a schema registry is invalid"
        ) from None


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """OpenSSL reads a certificate only from a file. The file is readable by its owner only, and removed at once."""
    with NamedTemporaryFile("w") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name)
