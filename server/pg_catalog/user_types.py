"""The rows of pg_type and pg_enum, and the texts of types."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog.oids import oid_of, row_array_oid, row_type_oid
from server.pg_catalog.static import Row, static_rows
from server.pg_catalog.static import type_texts as built_in_texts
from server.pg_catalog.type_rows import has_row_type, label_rows, row_type_rows
from server.pg_catalog.visible import BARE, Visible


def types(visible: Visible) -> Iterator[Row]:
    """pg_type: in the catalog `BARE` PostgreSQL's types, otherwise user-defined types and row types."""
    if visible.state is BARE:
        yield from static_rows("pg_type")
        return
    yield from visible.user_types.values()
    for item in visible.listed:
        if has_row_type(item):
            yield from row_type_rows(item, oid_of(item.schema_id), visible.owner(item.id))


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
    for item in visible.listed:
        if has_row_type(item):
            relation = oid_of(item.id)
            shown = {"text": visible.relation_names[relation], "visible": relation in visible.shown}
            own, array = row_type_oid(item.id), row_array_oid(item.id)
            yield {"oid": own, "base": own, "dimensions": "", **shown}
            yield {"oid": array, "base": own, "dimensions": "[]", **shown}
