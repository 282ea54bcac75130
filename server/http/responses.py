"""Responses of the HTTP port: text for pages, and errors, which are JSON for the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from protocol.pgwire.errors import PgError, SqlState

API = "/api/"
JSON = "application/json"


class Refused(Exception):
    """The request is answered with this status and error."""

    def __init__(self, status: int, error: PgError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.headers = headers or {}


def text_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def refusal(request: web.Request, refused: Refused) -> web.Response:
    """The response to a request that is refused: JSON for the API, otherwise text."""
    if request.path.startswith(API):
        response = error_response(refused.error, refused.status)
    else:
        response = text_response(refused.status, refused.error.message)
    response.headers.update(refused.headers)
    return response


def json_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def error_response(error: PgError, status: int) -> web.Response:
    return web.Response(status=status, body=json_bytes({"error": error_object(error)}), content_type=JSON)


def error_object(error: PgError) -> dict[str, Any]:
    """The JSON form of an error. The fields that few errors have are omitted if they are None."""
    rare = {
        "where": error.where,
        "schema": error.schema_name,
        "table": error.table_name,
        "column": error.column_name,
        "constraint": error.constraint_name,
    }
    return {
        "severity": error.severity,
        "sqlstate": error.sqlstate,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "position": error.position,
        **{name: value for name, value in rare.items() if value is not None},
    }


_STATUS: dict[str, int] = {
    SqlState.INSUFFICIENT_PRIVILEGE: 403,
    SqlState.QUERY_CANCELED: 408,
    SqlState.PROGRAM_LIMIT_EXCEEDED: 413,
}
_STATUS_OF_CLASS = {"28": 401, "40": 409, "53": 503, "57": 503, "58": 500, "XX": 500}


def status_of(sqlstate: str) -> int:
    """The HTTP status for an error: 400 unless another one says more."""
    return _STATUS.get(sqlstate) or _STATUS_OF_CLASS.get(sqlstate[:2], 400)
