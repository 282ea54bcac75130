"""Privileges as PostgreSQL's catalogs show them: texts of the type aclitem, and one row for each granted privilege."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.namespaces import Database, Schema
from catalog.objects.relations import Relation
from catalog.objects.types import Domain, EnumType
from catalog.roles import PUBLIC
from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible

GRANTS = pa.schema(
    [
        ("relation", pa.uint32()),
        ("place", pa.int32()),
        ("grantor", pa.uint32()),
        ("grantee", pa.uint32()),
        ("privilege", pa.string()),
        ("grantable", pa.bool_()),
    ]
)
ENABLED = pa.schema([("oid", pa.uint32())])
"""tw_enabled: the roles whose privileges a session's role has."""


OBJECT_GRANTS = pa.schema(
    [
        ("kind", pa.string()),
        ("object", pa.uint32()),
        ("owner", pa.uint32()),
        ("grantee", pa.uint32()),
        ("privilege", pa.string()),
        ("grantable", pa.bool_()),
    ]
)


def column_acl_of(visible: Visible, id: ObjectId, position: int) -> list[str] | None:
    """The aclitems of a column; None if no privilege on it was granted."""
    acl = visible.state.column_privileges.get(id, {}).get(position)
    return None if acl is None else visible.aclitems(acl)


def default_acls(visible: Visible) -> Iterator[Row]:
    """pg_default_acl"""
    database = visible.state.database_named(visible.viewpoint.database)
    for key, acl in visible.state.default_acls.items():
        if database is not None and key.database == database.id:
            yield {
                "oid": oids.default_acl_oid(key),
                "defaclrole": oids.oid_of(key.role),
                "defaclnamespace": 0 if key.schema is None else oids.oid_of(key.schema),
                "defaclobjtype": key.kind,
                "defaclacl": visible.aclitems(acl),
            }


def grants(visible: Visible) -> Iterator[Row]:
    """tw_grants: the privileges on relations (`place` 0) and on columns, explicit and default ones.

    `grantor` and `grantee` are OIDs, 0 for PUBLIC.
    """
    state = visible.state
    for item in visible.listed:
        if not isinstance(item, Relation):
            continue
        owner = state.owner(item.id)
        columns = state.column_privileges.get(item.id, {})
        for place, acl in ((0, state.acl(item.id)), *columns.items()):
            for entry in acl:
                has_options = entry.grantee != PUBLIC and state.has_rights_of(entry.grantee, owner)
                for privilege in sorted(entry.privileges):
                    yield {
                        "relation": oids.oid_of(item.id),
                        "place": place,
                        "grantor": oids.oid_of(entry.grantor),
                        "grantee": 0 if entry.grantee == PUBLIC else oids.oid_of(entry.grantee),
                        "privilege": privilege.value,
                        "grantable": has_options or privilege in entry.grantable,
                    }


def object_grants(visible: Visible) -> Iterator[Row]:
    """tw_object_grants: the privileges on schemas, databases and user-defined types, explicit and default ones.

    `owner` and `grantee` are OIDs, 0 for PUBLIC. An object without privileges has a row without a grantee.
    """
    state = visible.state
    objects: tuple[Schema | Database | Item, ...] = (
        *visible.schemas,
        *state.databases.values(),
        *visible.enums,
        *visible.domains,
    )
    for object in objects:
        kind = "type" if isinstance(object, EnumType | Domain) else object.kind
        row = {"kind": kind, "object": oids.oid_of(object.id), "owner": oids.oid_of(state.owner(object.id))}
        yield row
        for entry in state.acl(object.id):
            for privilege in sorted(entry.privileges):
                yield {
                    **row,
                    "grantee": 0 if entry.grantee == PUBLIC else oids.oid_of(entry.grantee),
                    "privilege": privilege.value,
                    "grantable": privilege in entry.grantable,
                }
