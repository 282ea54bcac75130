"""A client of a Confluent schema registry."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from testdrive.report import CommandFailed

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject, and its schema's text."""

    subject: str
    number: int
    schema: str


class Registry:
    """Registers and fetches schemas. CommandFailed if the registry refuses or cannot be reached."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def publish(
        self,
        subject: str,
        schema: str,
        *,
        timeout_s: float,
        kind: str = "AVRO",
        references: Sequence[Version] = (),
    ) -> int:
        """Adds a version to a subject and returns the schema's id. A reference's name is its subject."""
        body: dict[str, object] = {"schema": schema, "schemaType": kind}
        if references:
            body["references"] = [{"name": r.subject, "subject": r.subject, "version": r.number} for r in references]
        answer = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", timeout_s, body)
        return int(str(answer["id"]))

    def latest(self, subject: str, timeout_s: float) -> Version:
        answer = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", timeout_s)
        return Version(subject, int(str(answer["version"])), str(answer["schema"]))

    def schema(self, id: int, timeout_s: float) -> tuple[str, list[str]]:
        """Returns the text of a schema and the texts of the schemas that it refers to."""
        answer = self._request("GET", f"/schemas/ids/{id}", timeout_s)
        references = answer.get("references")
        texts = [
            self._request("GET", f"/subjects/{quote(r['subject'], safe='')}/versions/{r['version']}", timeout_s)[
                "schema"
            ]
            for r in (references if isinstance(references, list) else [])
        ]
        return str(answer["schema"]), list(map(str, texts))

    def _request(self, method: str, path: str, timeout_s: float, body: object = None) -> Mapping[str, object]:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._url}{path}"
        try:
            if not url.startswith(("http://", "https://")):
                raise ValueError("the URL begins neither with http:// nor with https://")
            request = urllib.request.Request(url, data, {"Content-Type": _CONTENT_TYPE}, method=method)
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise CommandFailed(f"the schema registry answered {method} {path} with {error.code}: {text}") from error
        except (OSError, ValueError) as error:
            raise CommandFailed(
                f"cannot use the schema registry at {self._url} (--schema-registry-url): {error}"
            ) from error
        if not isinstance(answer, dict):
            raise CommandFailed(f"the schema registry answered {method} {path} with {answer!r}")
        return answer
