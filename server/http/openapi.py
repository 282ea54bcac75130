"""The description of the HTTP API in the form of OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from server.http.request_limits import BODY_BYTES_MAX
from server.http.sql import ARROW, SETTINGS_MAX, STATEMENTS_MAX
from server.http.subscribe import EVENT_STREAM

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, description: str, schema: Schema = _STRING, *, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "description": description, "required": required, "schema": schema}


_DATABASE = _parameter("database", "The database of the session.", {"type": "string", "default": "materialize"})
_TIME: Schema = {"type": "string", "pattern": "^[0-9]{1,20}$"}
_PARAMETERS: Schema = {
    "type": "array",
    "description": "The values of $1, $2, ...: strings in PostgreSQL's text format, numbers, booleans, null; objects "
    "and arrays for json and jsonb.",
    "items": {},
}

_ERROR: Schema = {
    "type": "object",
    "required": ["severity", "sqlstate", "message", "detail", "hint", "position"],
    "properties": {
        "severity": _STRING,
        "sqlstate": {"type": "string", "pattern": "^[0-9A-Z]{5}$"},
        "message": _STRING,
        "detail": _NULLABLE,
        "hint": _NULLABLE,
        "position": {"type": ["integer", "null"], "description": "From 1, in characters of the query."},
        "where": _STRING,
        "schema": _STRING,
        "table": _STRING,
        "constraint": _STRING,
    },
    "additionalProperties": False,
}
_COLUMN: Schema = {
    "type": "object",
    "required": ["name", "type", "oid"],
    "properties": {"name": _STRING, "type": _STRING, "oid": {"type": "integer"}},
    "additionalProperties": False,
}
_RESULT: Schema = {
    "type": "object",
    "description": "`columns` and `rows` are absent if the statement returns no rows. `tag` is the command tag. "
    "It is absent if an error ended the statement.",
    "properties": {
        "columns": {"type": "array", "items": _ref("Column")},
        "rows": {"type": "array", "items": {"type": "array"}},
        "tag": _STRING,
        "notices": {"type": "array", "items": _ref("Error")},
    },
    "additionalProperties": False,
}
_ANSWER: Schema = {
    "type": "object",
    "properties": {"results": {"type": "array", "items": _ref("Result")}, "error": _ref("Error")},
    "additionalProperties": False,
}
_STATEMENT: Schema = {
    "type": "object",
    "required": ["query"],
    "properties": {"query": _STRING, "parameters": _PARAMETERS},
    "additionalProperties": False,
}
_REQUEST: Schema = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "One statement, or several if there are no `parameters`."},
        "parameters": _PARAMETERS,
        "statements": {"type": "array", "items": _ref("Statement"), "maxItems": STATEMENTS_MAX},
        "settings": {
            "type": "object",
            "description": "Settings of the session, as with SET.",
            "additionalProperties": _STRING,
            "maxProperties": SETTINGS_MAX,
        },
    },
    "oneOf": [{"required": ["query"]}, {"required": ["statements"]}],
    "additionalProperties": False,
}
_FAILURE: Schema = {"application/json": {"schema": _ref("Answer")}}
_FAILURES: Schema = {
    "400": {"description": "An error of the statement or of the request.", "content": _FAILURE},
    "401": {"description": "The login failed, or credentials are required.", "content": _FAILURE},
    "403": {"description": "A privilege is missing, or a page of another origin asks.", "content": _FAILURE},
    "408": {"description": "The statement was cancelled, or the body took too long.", "content": _FAILURE},
    "409": {"description": "The transaction conflicted with another one.", "content": _FAILURE},
    "413": {"description": "The body, or what the statement needs, is too large.", "content": _FAILURE},
    "415": {"description": "The body is not JSON.", "content": _FAILURE},
    "500": {"description": "An internal error.", "content": _FAILURE},
    "503": {"description": "The server is full, starting or stopping.", "content": _FAILURE},
}

DESCRIPTION: Schema = {
    "openapi": "3.1.0",
    "info": {
        "title": "Tidewire",
        "version": "1",
        "description": "SQL and subscriptions over HTTP.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "security": [{}, {"basic": []}, {"certificate": []}],
    "paths": {
        "/api/sql": {
            "post": {
                "operationId": "sql",
                "summary": "Executes statements in one transaction.",
                "parameters": [_DATABASE],
                "requestBody": {
                    "required": True,
                    "description": f"At most {BODY_BYTES_MAX} bytes.",
                    "content": {"application/json": {"schema": _ref("Request")}},
                },
                "responses": {
                    "200": {
                        "description": "The results. `error` is present if an error occurred after a part was sent.",
                        "content": {
                            "application/json": {"schema": _ref("Answer")},
                            ARROW: {"schema": {"type": "string", "contentEncoding": "binary"}},
                        },
                    },
                    **_FAILURES,
                },
            }
        },
        "/api/subscribe": {
            "get": {
                "operationId": "subscribe",
                "summary": "The rows of SUBSCRIBE as server-sent events, or as messages of a WebSocket.",
                "parameters": [
                    _parameter("query", "The name of a relation, or a SELECT.", required=True),
                    _parameter("parameters", "A JSON array with the values of $1, $2, ..."),
                    _parameter("key", "The key of the envelope: a column, or a JSON array of columns."),
                    _parameter("envelope", "The envelope.", {"enum": ["upsert", "debezium"]}),
                    _parameter("order_by", "WITHIN TIMESTAMP ORDER BY."),
                    _parameter("as_of", "The time at which to begin.", _TIME),
                    _parameter("up_to", "The time before which to end.", _TIME),
                    _parameter("snapshot", "Whether to begin with the contents.", {"enum": ["true", "false"]}),
                    _parameter("token", "The token after which to resume."),
                    _DATABASE,
                    {
                        "name": "Last-Event-ID",
                        "in": "header",
                        "description": "As `token`, which it overrides.",
                        "schema": _STRING,
                    },
                ],
                "responses": {
                    "101": {"description": "A WebSocket with an object {event, data} for each event."},
                    "200": {
                        "description": "The events start, rows, progress, notice, failure and end.",
                        "content": {EVENT_STREAM: {"schema": _STRING}},
                    },
                    **{status: failure for status, failure in _FAILURES.items() if status != "415"},
                },
            }
        },
    },
    "components": {
        "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}, "certificate": {"type": "mutualTLS"}},
        "schemas": {
            "Request": _REQUEST,
            "Statement": _STATEMENT,
            "Answer": _ANSWER,
            "Result": _RESULT,
            "Column": _COLUMN,
            "Error": _ERROR,
        },
    },
}
