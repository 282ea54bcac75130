"""The description of the HTTP API is valid, and requests, answers and routes agree with it."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from server.http.openapi import DESCRIPTION
from server.http.subscription_query import PARAMETERS
from tests.fix_server import ServerThread
from tests.server.http.fix_api import Api


def validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": DESCRIPTION["components"]})


def test_the_description_is_valid() -> None:
    validate(DESCRIPTION)


def test_it_names_all_parameters() -> None:
    parameters = DESCRIPTION["paths"]["/api/subscribe"]["get"]["parameters"]
    assert {one["name"] for one in parameters if one["in"] == "query"} == set(PARAMETERS)


@pytest.mark.parametrize(
    "body",
    [
        {"query": "SELECT 1"},
        {"query": "SELECT 1; SELECT 2"},
        {"query": "SELECT $1::int", "parameters": [1]},
        {"statements": [{"query": "SELECT $1", "parameters": ["a"]}, {"query": "DROP TABLE IF EXISTS nothing"}]},
        {"query": "SELECT 1", "settings": {"timezone": "UTC"}},
        {"query": "SELECT nothing"},
        {"query": "SELECT 1", "unknown": True},
        {"query": 1},
        {"statements": [{"query": "SELECT 1", "unknown": True}]},
        {"query": "SELECT 1", "statements": []},
        {},
    ],
)
def test_requests_and_answers(passing_server: ServerThread, body: dict[str, Any]) -> None:
    reply = Api(passing_server.http_port).post(body)
    validator("Answer").validate(reply.json)
    assert str(reply.status) in DESCRIPTION["paths"]["/api/sql"]["post"]["responses"]
    is_refused = reply.status == 400 and reply.json["error"]["sqlstate"] == "08P01"
    assert validator("Request").is_valid(body) is not is_refused


def test_it_is_served(passing_server: ServerThread) -> None:
    api = Api(passing_server.http_port)
    assert api.request("GET", "/api/openapi.json").json == DESCRIPTION
    for path, operations in DESCRIPTION["paths"].items():
        allowed = api.request("DELETE", path).headers["Allow"]
        assert {method.upper() for method in operations} == set(allowed.split(", "))
