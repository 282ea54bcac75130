"""The rows of pg_description and pg_shdescription: what COMMENT ON has set."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.objects.tables import Table
from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible

PG_CONSTRAINT = 2606
PG_DATABASE = 1262


def descriptions(visible: Visible) -> Iterator[Row]:
    """pg_description: the comments of relations, their columns and constraints, types and schemas."""
    catalogs = {item.id: oids.PG_CLASS for item in visible.items}
    catalogs |= {type.id: oids.PG_TYPE for type in (*visible.enums, *visible.domains)}
    catalogs |= {schema.id: oids.PG_NAMESPACE for schema in visible.schemas}
    for (id, position), comment in visible.state.comments.items():
        if id in catalogs:
            yield {
                "objoid": oids.oid_of(id),
                "classoid": catalogs[id],
                "objsubid": position,
                "description": comment,
            }
    for table in visible.items:
        if isinstance(table, Table):
            for oid, text in _of_constraints(table):
                if text is not None:
                    yield {"objoid": oid, "classoid": PG_CONSTRAINT, "objsubid": 0, "description": text}


def _of_constraints(table: Table) -> Iterator[tuple[int, str | None]]:
    """The OIDs of a table's constraints, with their comments."""
    yield from ((oids.key_oid(table.id, key.number), key.comment) for key in table.keys)
    yield from ((oids.check_oid(table.id, number), check.comment) for number, check in enumerate(table.checks))
    yield from ((oids.foreign_key_oid(table.id, key.number), key.comment) for key in table.foreign_keys)


def shared_descriptions(visible: Visible) -> Iterator[Row]:
    """pg_shdescription: the comments of databases."""
    for (id, _), comment in visible.state.comments.items():
        if id in visible.state.databases:
            yield {"objoid": oids.oid_of(id), "classoid": PG_DATABASE, "description": comment}
