"""The rows of pg_description and pg_shdescription: what COMMENT ON has set."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible

PG_CLASS, PG_NAMESPACE, PG_DATABASE = 1259, 2615, 1262


def descriptions(visible: Visible) -> Iterator[Row]:
    """pg_description: the comments of relations, their columns and schemas."""
    relations, schemas = {item.id for item in visible.items}, {schema.id for schema in visible.schemas}
    for (id, position), comment in visible.state.comments.items():
        if id in relations or id in schemas:
            yield {
                "objoid": oids.oid_of(id),
                "classoid": PG_CLASS if id in relations else PG_NAMESPACE,
                "objsubid": position,
                "description": comment,
            }


def shared_descriptions(visible: Visible) -> Iterator[Row]:
    """pg_shdescription: the comments of databases."""
    for (id, _), comment in visible.state.comments.items():
        if id in visible.state.databases:
            yield {"objoid": oids.oid_of(id), "classoid": PG_DATABASE, "description": comment}
