"""The rows of pg_type and pg_enum, and the texts of types."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog.static import Row, static_rows
from server.pg_catalog.static import type_texts as built_in_texts
from server.pg_catalog.type_rows import label_rows
from server.pg_catalog.visible import BARE, Visible


def types(visible: Visible) -> Iterator[Row]:
    """pg_type: in the catalog `BARE` PostgreSQL's types, otherwise user-defined types."""
    yield from static_rows("pg_type") if visible.state is BARE else visible.user_types.values()


def labels(visible: Visible) -> Iterator[Row]:
    """pg_enum"""
    for item in visible.enums:
        yield from label_rows(item)


def type_texts(visible: Visible) -> Iterator[Row]:
    """tw_types: the input of format_type and pg_type_is_visible. `base`: of an array the OID of its elements' type."""
    if visible.state is BARE:
        yield from ({**row, "visible": True} for row in built_in_texts())
        return
    for oid, row in visible.user_types.items():
        is_array = oid not in visible.type_names
        base = row["typelem"] if is_array else oid
        text, is_visible = visible.type_names[base]
        yield {
            "oid": oid,
            "text": text,
            "base": base,
            "dimensions": "[]" if row["typelem"] else "",
            "visible": is_visible,
        }
