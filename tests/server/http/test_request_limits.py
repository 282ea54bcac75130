"""The number of values in a JSON text, which is counted before the text is parsed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from server.http.request_limits import count_values

VALUES = st.recursive(
    st.none() | st.integers() | st.text('a\\",[]{}:/\n\u00e9'),
    lambda part: st.lists(part) | st.dictionaries(st.text('a\\",[{'), part),
    max_leaves=30,
)


def counted(value: object) -> int:
    """The plain equivalent: arrays, objects, and their elements except the first."""
    if not isinstance(value, list | dict):
        return 0
    parts = list(value.values() if isinstance(value, dict) else value)
    return 1 + max(len(parts) - 1, 0) + sum(map(counted, parts))


@given(VALUES, st.booleans())
def test_values_are_counted_outside_strings(value: object, ascii_only: bool) -> None:
    assert count_values(json.dumps(value, ensure_ascii=ascii_only).encode()) == counted(value)


@given(VALUES, st.binary(), st.integers(0, 100))
def test_damage_hides_no_values_before_it(value: object, damage: bytes, at: int) -> None:
    text = json.dumps(value).encode()
    assert count_values(text[:at] + damage) >= count_values(text[:at])
