"""Databases contain schemas, and schemas contain items."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.ids import ObjectId
from catalog.objects.catalog_object import USAGE_AND_CREATE, USAGE_ONLY, CatalogObject
from catalog.roles import Privilege


@dataclass(frozen=True)
class Database(CatalogObject):
    id: ObjectId
    name: str

    kind = "database"
    privileges = USAGE_AND_CREATE

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return USAGE_ONLY


@dataclass(frozen=True)
class Schema(CatalogObject):
    """`database_id` is None for the system schemas, which are visible in every database."""

    id: ObjectId
    database_id: ObjectId | None
    name: str

    kind = "schema"
    privileges = USAGE_AND_CREATE
    default_acl_kind = "n"

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return USAGE_ONLY if self.database_id is None else frozenset()


TEMPORARY = "pg_temp"
"""The name by which a session refers to its schema of temporary objects."""


def temporary_schema_name(process_id: int) -> str:
    """The name of the schema that has the temporary objects of a session."""
    return f"{TEMPORARY}_{process_id}"


def is_temporary(schema: Schema) -> bool:
    """Whether a schema has the temporary objects of a session. No other schema can have such a name."""
    return schema.name.startswith(f"{TEMPORARY}_")
