"""The rows of pg_database and pg_namespace."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible


def databases(visible: Visible) -> Iterator[Row]:
    """pg_database"""
    for database in visible.state.databases.values():
        yield {
            "oid": oids.oid_of(database.id),
            "datname": database.name,
            "datdba": visible.owner(database.id),
            "encoding": 6,
            "datlocprovider": "c",
            "datistemplate": False,
            "datallowconn": True,
            "datconnlimit": -1,
            "datfrozenxid": 0,
            "datminmxid": 0,
            "dattablespace": 1663,
            "datcollate": "C",
            "datctype": "C",
            "datacl": visible.acl(database.id),
        }


def namespaces(visible: Visible) -> Iterator[Row]:
    """pg_namespace: the schemas of the viewpoint's database."""
    for schema in visible.schemas:
        yield {
            "oid": oids.oid_of(schema.id),
            "nspname": schema.name,
            "nspowner": visible.owner(schema.id),
            "nspacl": visible.acl(schema.id),
        }
