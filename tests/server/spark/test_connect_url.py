"""Parsing of Spark Connect URLs."""

from __future__ import annotations

import pytest

from server.spark.connect.url import ConnectUrl


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("sc://spark.example", ConnectUrl("spark.example:15002")),
        ("sc://spark.example:99/", ConnectUrl("spark.example:99")),
        ("sc://[::1]:99", ConnectUrl("[::1]:99")),
        ("sc://h/;use_ssl=true;user_id=me", ConnectUrl("h:15002", user_id="me", use_ssl=True)),
        ("sc://h/;x-Tenant=a%20b", ConnectUrl("h:15002", headers=(("x-tenant", "a b"),))),
        ("sc://h/;token=s", ConnectUrl("h:15002", use_ssl=True, headers=(("authorization", "Bearer s"),))),
        ("sc://localhost/;token=s", ConnectUrl("localhost:15002", headers=(("authorization", "Bearer s"),))),
    ],
)
def test_valid_urls_are_parsed(text: str, parsed: ConnectUrl) -> None:
    assert ConnectUrl.parse(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "spark://h:1", "sc://", "sc://h:99999", "sc://h/path", "sc://h/;a", "sc://h/;session_id=1"]
)
def test_malformed_urls_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ConnectUrl.parse(text)


def test_a_token_is_hidden_in_the_text_of_a_url() -> None:
    url = ConnectUrl.parse("sc://h/;token=secret")
    assert "secret" not in f"{url} {url!r}"
