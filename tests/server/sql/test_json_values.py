"""Splitting JSON texts into elements and pairs, assigning parts, and the sort keys by which Spark orders jsonb."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire import json_values
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_values import parse_json, parse_jsonb
from server.sql.functions.json import (
    JSONB_SORT_KEY,
    SET_JSON_ELEMENT,
    json_elements,
    json_pairs,
    json_text,
    kind_of,
    order_key,
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(-1e6, 1e6)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ab", "ä"]), inner),
    max_leaves=8,
)


@given(st.lists(VALUES), st.sampled_from([None, 1]))
def test_the_elements_of_an_array_are_complete(values: list[Any], indent: int | None) -> None:
    elements = json_elements(json.dumps(values, indent=indent))
    assert [json.loads(element) for element in elements] == values


@given(st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), VALUES))
def test_the_keys_of_pairs_are_unescaped(value: dict[str, Any]) -> None:
    assert [(key, json.loads(text)) for key, text in json_pairs(json.dumps(value))] == list(value.items())


@pytest.mark.parametrize("parse", [parse_json, parse_jsonb])
def test_values_with_too_many_elements_are_refused(
    parse: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "VALUES_MAX", 3)
    assert parse("[1, 2, 3, 4]") == "[1, 2, 3, 4]"
    for text in ("[1, 2, 3, 4, 5]", "[[1, 2], [3, 4, 5, 6]]", '{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}'):
        with pytest.raises(PgError, match="number of JSON values exceeds the maximum allowed") as refusal:
            parse(text)
        assert refusal.value.sqlstate is SqlState.PROGRAM_LIMIT_EXCEEDED


def test_duplicate_keys_and_inner_whitespace_are_kept() -> None:
    assert json_pairs(' { "a" : 1 , "a":[ 1,  2 ] } ') == [("a", "1"), ("a", "[ 1,  2 ]")]
    assert json_elements('[ 1.50 , "x,]" ,{"k": [ ]}]') == ["1.50", '"x,]"', '{"k": [ ]}']
    assert json_elements(" [ ] ") == []


def test_the_text_and_kind_of_a_value() -> None:
    assert json_text('"a\\n\\u00e4"') == "a\nä"
    assert json_text("null") is None
    assert [json_text(text) for text in (" 1.50 ", "true", "[1,  2]")] == ["1.50", "true", "[1,  2]"]
    with pytest.raises(PgError):
        json_text('"\\u0000"')
    assert [kind_of(text) for text in (" {}", "[]", '""', "null", "false", "-1")] == [
        *("object", "array", "string", "null", "boolean", "number")
    ]


@given(st.lists(VALUES, min_size=2, max_size=6))
def test_sort_keys_have_the_order_of_their_values(values: list[Any]) -> None:
    sort_key = JSONB_SORT_KEY.python
    assert sort_key is not None
    texts = [parse_jsonb(json.dumps(value)) for value in values]
    for a, b in product(texts, repeat=2):
        assert (order_key(a) < order_key(b)) == (sort_key(a) < sort_key(b)), (a, b)


def test_an_assignment_adds_few_null_elements() -> None:
    assign = SET_JSON_ELEMENT.python
    assert assign is not None
    with pytest.raises(PgError, match=r"^number of jsonb array elements exceeds the maximum allowed$") as caught:
        assign('{"a": []}', ["a", "100001"], False, "1")
    assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED
    assert assign('{"a": []}', ["a", "2"], False, "1") == '{"a": [null, null, 1]}'
