"""The objects of the catalog that are visible in one of its databases, and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from catalog import builtin
from catalog.acls import Acl, letters
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Schema
from catalog.objects.system_tables import SystemTable
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.roles import PUBLIC
from catalog.state import CatalogState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import PgType, parse_type
from server.pg_catalog import oids
from server.pg_catalog.keys import keys_of
from server.pg_catalog.static import Row, types_by_oid
from server.pg_catalog.type_rows import domain_row, enum_rows
from server.sql.grammar.lexer import Kind, quote_identifier, tokenize
from server.sql.sequence_names import with_names

BARE = CatalogState(
    databases={},
    schemas={schema.id: schema for schema in builtin.SCHEMAS},
    items={table.id: table for table in builtin.TABLES},
    next_id=1,
)
"""A catalog with the built-in objects only."""


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """A database and a search path. `search_path` contains only the schemas that the session's role may use."""

    database: str
    search_path: tuple[str, ...]


class Visible:
    """A catalog state from a viewpoint. Derived values are cached."""

    def __init__(self, state: CatalogState, viewpoint: Viewpoint) -> None:
        self.state, self.viewpoint = state, viewpoint

    @cached_property
    def schemas(self) -> list[Schema]:
        database = self.state.database_named(self.viewpoint.database)
        shown = (None, database.id if database is not None else None)
        return [schema for schema in self.state.schemas.values() if schema.database_id in shown]

    @cached_property
    def items(self) -> list[Item]:
        """The items of the visible schemas that PostgreSQL's catalogs show."""
        shown = {schema.id for schema in self.schemas}
        items = self.state.items.values()
        return [item for item in items if item.schema_id in shown and item.relkind is not None]

    @cached_property
    def enums(self) -> list[EnumType]:
        """The enumerated types of the visible schemas."""
        shown = {schema.id for schema in self.schemas}
        return [item for item in self.state.items_of(EnumType) if item.schema_id in shown]

    @cached_property
    def domains(self) -> list[Domain]:
        """The domains of the visible schemas."""
        shown = {schema.id for schema in self.schemas}
        return [item for item in self.state.items_of(Domain) if item.schema_id in shown]

    @cached_property
    def user_types(self) -> dict[int, Row]:
        """The rows of user-defined types, and of their arrays, in pg_type, by OID."""
        rows = {
            row["oid"]: row
            for item in self.enums
            for row in enum_rows(item, oids.oid_of(item.schema_id), self.owner(item.id), self.acl(item.id))
        }
        for domain in self.domains:
            oid = parse_type(domain.base).oid
            default = None if domain.default is None else self.default_text(parse_type(domain.base), domain.default)
            place = oids.oid_of(domain.schema_id), self.owner(domain.id), self.acl(domain.id)
            rows[oids.oid_of(domain.id)] = domain_row(domain, types_by_oid().get(oid) or rows[oid], default, *place)
        return rows

    def type(self, oid: int) -> Row:
        """The row of a type in pg_type."""
        return types_by_oid().get(oid) or self.user_types[oid]

    @cached_property
    def type_names(self) -> dict[int, tuple[str, bool]]:
        """The text of a regtype and whether the search path has the type, for each user-defined type by its OID."""
        found: dict[int, tuple[str, bool]] = {}
        seen: set[str] = set()
        types = [*self.enums, *self.domains]
        for schema in self.path:
            for item in types:
                if item.schema_id == schema.id:
                    is_first = item.name not in seen
                    seen.add(item.name)
                    found[oids.oid_of(item.id)] = (quote_identifier(item.name), is_first)
        names = {schema.id: schema.name for schema in self.schemas}
        for item in types:
            if not found.get(oids.oid_of(item.id), ("", False))[1]:
                full = f"{quote_identifier(names[item.schema_id])}.{quote_identifier(item.name)}"
                found[oids.oid_of(item.id)] = (full, False)
        return found

    def text_of(self, stored: str) -> str:
        """A stored expression with the names of relations and types in place of ids."""

        def name_of(id: ObjectId) -> str:
            oid = oids.oid_of(id)
            return self.type_names[oid][0] if oid in self.type_names else self.relation_names[oid]

        return with_names(stored, name_of)

    def default_text(self, type: PgType, stored: str) -> str:
        """A default as pg_get_expr returns it. A string literal has its type, or is a number or a boolean.

        The keywords true and false are in lower case.

        ORMs recognize the value of a default by the type after it.
        """
        text = self.text_of(stored)
        if text.lower() in ("true", "false"):
            return text.lower()
        if not text.endswith(("'", "$")):
            return text
        literal, *rest = tokenize(text)
        if literal.kind is not Kind.STRING or len(rest) > 1:
            return text
        value = literal.value
        if type.name == "bool":
            return "true" if parse_text(type, value) else "false"
        if type.name in ("int2", "int4", "int8", "numeric") and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return value
        named = self.type_names.get(type.oid)
        name = named[0] if named is not None else "bpchar" if type.name == "bpchar" else type.base_display
        quoted = "'" + value.replace("'", "''") + "'"
        return f"{quoted}::{name}"

    @cached_property
    def listed(self) -> list[Item]:
        """The users' items; in the catalog `BARE` the built-in ones, so that their rows are built only once."""
        return [item for item in self.items if isinstance(item, SystemTable) == (self.state is BARE)]

    @cached_property
    def indexed(self) -> frozenset[ObjectId]:
        return frozenset(item.on for item in self.items if isinstance(item, Index))

    @cached_property
    def with_foreign_keys(self) -> frozenset[ObjectId]:
        """The tables that have a foreign key or are referenced by one: in PostgreSQL they have triggers."""
        owners = [item for item in self.items if isinstance(item, Table) and item.foreign_keys]
        return frozenset(id for table in owners for key in table.foreign_keys for id in (table.id, key.referenced))

    @cached_property
    def path(self) -> list[Schema]:
        """The schemas that are searched for an unqualified name, in search order."""
        by_name = {schema.name: schema for schema in self.schemas}
        named = self.viewpoint.search_path
        names = (*(s for s in ("pg_catalog", "mz_catalog") if s not in named), *named)
        return [by_name[name] for name in dict.fromkeys(names) if name in by_name]

    @cached_property
    def relations(self) -> list[tuple[int, str, Schema]]:
        """(OID, name, schema) of each relation in pg_class, including the indexes of keys."""
        schemas = {schema.id: schema for schema in self.schemas}
        found = [(oids.oid_of(item.id), item.name, schemas[item.schema_id]) for item in self.items]
        for item in self.items:
            found += [(key.oid, key.name, schemas[item.schema_id]) for key in keys_of(item)]
        return found

    @cached_property
    def _visible(self) -> dict[str, tuple[int, Schema]]:
        """Unqualified name -> (OID, schema) of the first relation of that name in `path`."""
        found: dict[str, tuple[int, Schema]] = {}
        by_schema: dict[ObjectId, list[tuple[int, str]]] = {}
        for oid, name, schema in self.relations:
            by_schema.setdefault(schema.id, []).append((oid, name))
        for schema in self.path:
            for oid, name in by_schema.get(schema.id, ()):
                found.setdefault(name, (oid, schema))
        return found

    @cached_property
    def shown(self) -> frozenset[int]:
        """The OIDs for which pg_table_is_visible returns true.

        Excludes mz_catalog unless the search path names it, so that psql's `\\dt` lists only users' tables.
        """
        named = self.viewpoint.search_path
        hidden = {builtin.MZ_CATALOG.id} if builtin.MZ_CATALOG.name not in named else set()
        return frozenset(oid for oid, schema in self._visible.values() if schema.id not in hidden)

    def named(self, parts: Sequence[str]) -> int | None:
        """Returns the OID of a relation by its name, of one to three parts; None if there is none."""
        if len(parts) == 1:
            found = self._visible.get(parts[0])
            return found[0] if found is not None else None
        return self._by_name.get((parts[-2], parts[-1]))

    @cached_property
    def relation_names(self) -> dict[int, str]:
        """OID -> text of a regclass, with the schema if the relation is not visible without it."""
        return {
            oid: quote_identifier(name)
            if oid in self.shown
            else f"{quote_identifier(schema.name)}.{quote_identifier(name)}"
            for oid, name, schema in self.relations
        }

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], int]:
        return {(schema.name, name): oid for oid, name, schema in self.relations}

    def owner(self, id: ObjectId) -> int:
        """Returns the OID of the object's owner."""
        return oids.oid_of(self.state.owner(id))

    def acl(self, id: ObjectId) -> list[str] | None:
        """The aclitems of a database, schema or item; None if it has the default privileges of its kind."""
        acl = self.state.privileges.get(id)
        return None if acl is None else self.aclitems(acl)

    def aclitems(self, acl: Acl) -> list[str]:
        """`grantee=letters/grantor` for each entry. The grantee is empty for PUBLIC."""
        return [
            f"{_quoted(self.role_name(item.grantee))}={letters(item)}/{_quoted(self.role_name(item.grantor))}"
            for item in acl
        ]

    def role_name(self, role: ObjectId) -> str:
        """The name of a role; empty for PUBLIC."""
        return "" if role == PUBLIC else self.state.roles[role].name


def _quoted(name: str) -> str:
    """The name as PostgreSQL's putid() writes it: quoted if it has other characters than letters, digits and _."""
    if all(character.isascii() and (character.isalnum() or character == "_") for character in name):
        return name
    return '"' + name.replace('"', '""') + '"'
