"""Rows as values: their text, and the JSON object of their fields (chapter 9.16)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from protocol.pgwire.json_values import quoted_json
from protocol.pgwire.scalars import format_text
from protocol.pgwire.text_columns import OutputStyle
from protocol.pgwire.types import PgType
from server.sql.casts import text_form
from server.sql.functions.json import json_of
from server.sql.functions.table import GRAMMAR, Nulls, exact_texts, row

_QUOTED = re.compile(r'[\\"(),\s]')


def _field(type: PgType, value: Any, timezone: str) -> str:
    if value is None:
        return ""
    if (type.element or type).name == "timestamptz":
        text = format_text(type, value, OutputStyle(timezone=timezone or "UTC"))
    else:
        text = text_form(type, value)
    if text and not _QUOTED.search(text):
        return text
    doubled = text.replace("\\", "\\\\").replace('"', '""')
    return f'"{doubled}"'


def _text(start: str, *values: Any, types: Sequence[PgType], timezone: str) -> str:
    """record_out(). `start` is empty: a variadic row of the table needs an argument even for a row without fields."""
    fields = (_field(type, value, timezone) for type, value in zip(types[1:], values, strict=True))
    return f"{start}({','.join(fields)})"


def _json(separator: str, *members: Any, types: Sequence[PgType]) -> str:
    """row_to_json(). `members` are names and values alternately."""
    pairs = zip(members[::2], members[1::2], types[2::2], strict=True)
    return "{" + separator.join(f"{quoted_json(name)}:{json_of(type, value)}" for name, value, type in pairs) + "}"


row(GRAMMAR, "row", "text any", "record", nulls=Nulls.NEVER, variadic=True, typed=True, zoned=True,
    prepare=exact_texts, python=_text)  # fmt: skip
row(GRAMMAR, "row to json", "text any", "json", nulls=Nulls.NEVER, variadic=True, typed=True,
    prepare=exact_texts, python=_json)  # fmt: skip
(TEXT_OF_ROW,), (JSON_OF_ROW,) = GRAMMAR["row"], GRAMMAR["row to json"]
