"""The rows of PostgreSQL's system tables, for a catalog state and a viewpoint.

`CatalogRows(state, viewpoint)[name]` is the Arrow table of `pg_class` etc., built on first use. The other modules of
this package generate the rows; `static` has the rows that every PostgreSQL database has. A relation that is not defined
here is empty or a view over others (`views.sql`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import count

import pyarrow as pa

from catalog import builtin
from catalog.state import CatalogState
from protocol.pgwire.types import parse_type
from server.pg_catalog import (
    acls,
    comments,
    databases,
    definitions,
    dependencies,
    functions,
    indexes,
    relations,
    roles,
    sequences,
    user_types,
)
from server.pg_catalog.static import BY_NAME, Row, schema_of, static, static_rows
from server.pg_catalog.visible import BARE, Viewpoint, Visible
from server.sql.grammar.lexer import RESERVED_WORDS

Rows = Callable[[Visible], Iterator[Row]]
_ROWS: dict[str, Rows] = {
    "pg_attrdef": relations.defaults,
    "pg_attribute": relations.attributes,
    "pg_auth_members": roles.members,
    "pg_authid": roles.roles,
    "pg_cast": functions.casts,
    "pg_class": relations.classes,
    "pg_constraint": indexes.constraints,
    "pg_database": databases.databases,
    "pg_default_acl": acls.default_acls,
    "pg_depend": dependencies.dependencies,
    "pg_description": comments.descriptions,
    "pg_extension": dependencies.extensions,
    "pg_index": indexes.indexes,
    "pg_namespace": databases.namespaces,
    "pg_operator": functions.operators,
    "pg_proc": functions.functions,
    "pg_enum": user_types.labels,
    "pg_rewrite": dependencies.rules,
    "pg_sequence": sequences.sequences,
    "pg_shdescription": comments.shared_descriptions,
    "pg_type": user_types.types,
}
_TEXTS = [("oid", pa.uint32()), ("text", pa.string())]
_HELPERS: dict[str, tuple[pa.Schema, Rows]] = {
    "tw_relations": (pa.schema([*_TEXTS, ("visible", pa.bool_())]), definitions.relation_texts),
    "tw_definitions": (pa.schema([*_TEXTS, ("place", pa.int32())]), definitions.definitions),
    "tw_updatable": (pa.schema([("oid", pa.uint32()), ("place", pa.int32())]), definitions.updatable),
    "tw_grants": (acls.GRANTS, acls.grants),
    "tw_object_grants": (acls.OBJECT_GRANTS, acls.object_grants),
    "tw_serials": (sequences.SERIALS, sequences.serials),
    "tw_constraints": (pa.schema(_TEXTS), definitions.constraint_definitions),
    "tw_types": (
        pa.schema([*_TEXTS, ("base", pa.uint32()), ("dimensions", pa.string()), ("visible", pa.bool_())]),
        user_types.type_texts,
    ),
    "tw_functions": (
        pa.schema([("oid", pa.uint32()), *((n, pa.string()) for n in ("name", "arguments", "result", "definition"))]),
        functions.function_texts,
    ),
    "tw_session": (
        pa.schema([("database", pa.string())]),
        lambda visible: iter([{"database": visible.viewpoint.database}]),
    ),
    "tw_reserved": (
        pa.schema([("word", pa.string())]),
        lambda _: ({"word": word} for word in sorted(RESERVED_WORDS)),
    ),
}
HELPERS = tuple(_HELPERS)
"""Helper tables that the functions in `functions.sql` read. PostgreSQL does not have them."""
_MZ_SCHEMAS = {builtin.MZ_CATALOG.id, builtin.MZ_INTERNAL.id}
MZ_TABLES = {table.name: table for table in builtin.TABLES if table.schema_id in _MZ_SCHEMAS}
SIZES = pa.schema([("oid", pa.uint32()), ("database", pa.uint32()), ("bytes", pa.int64())])
_SCHEMAS = {"pg": "pg_catalog", "info": "information_schema"}
_CONSTANT = frozenset(("pg_extension", "pg_proc", "tw_functions", "tw_reserved", *static())) - {"pg_type"}
_HALF_CONSTANT = frozenset(("pg_attribute", "pg_class", "pg_depend", "pg_type", "tw_grants", "tw_types"))


_revisions = count(1)


class CatalogRows:
    """The system tables by name, as seen from `viewpoint`. `revision` is unique to this object."""

    def __init__(self, state: CatalogState, viewpoint: Viewpoint) -> None:
        self.revision = next(_revisions)
        self.visible = Visible(state, viewpoint)
        self._built: dict[str, pa.Table] = {}

    def __contains__(self, name: str) -> bool:
        return name in _ROWS or name in static()

    def __getitem__(self, name: str) -> pa.Table:
        """Returns a table of pg_catalog or one of HELPERS. KeyError for another name."""
        table = self._built.get(name)
        if table is None:
            table = _constant(name) if name in _CONSTANT else _table(name, self.visible)
            if name in _HALF_CONSTANT:
                table = pa.concat_tables([_constant(name), table])
            self._built[name] = table
        return table

    @cached_property
    def relation(self) -> Callable[[str, str], pa.Table | None]:
        """A function that returns a relation by the catalog engine's schema and name; None if there is none.

        A relation of PostgreSQL's for which no rows are generated is empty.
        """

        def found(schema: str, name: str) -> pa.Table | None:
            if schema == "pg" and (name in self or name in HELPERS):
                return self[name]
            return empty_relation(schema, name)

        return found


def no_rows(schema: str, name: str) -> pa.Table | None:
    """Returns a relation without rows, for describing queries; None if there is no such relation."""
    if schema == "mz":
        if name not in MZ_TABLES:
            return None
        return pa.schema([(c.name, parse_type(c.type).arrow) for c in MZ_TABLES[name].columns]).empty_table()
    if name in HELPERS:
        return _HELPERS[name][0].empty_table()
    if name == "tw_sizes":
        return SIZES.empty_table()
    if name == "tw_enabled":
        return acls.ENABLED.empty_table()
    if name == "tw_last_values":
        return sequences.LAST_VALUES.empty_table()
    return empty_relation(schema, name)


def empty_relation(schema: str, name: str) -> pa.Table | None:
    """Returns one of PostgreSQL's relations without rows, by the catalog engine's schema and name; None if unknown."""
    relation = BY_NAME.get((_SCHEMAS.get(schema, ""), name))
    return schema_of(relation).empty_table() if relation is not None else None


def _table(name: str, visible: Visible) -> pa.Table:
    if name in _HELPERS:
        schema, rows = _HELPERS[name]
    else:
        schema = schema_of(BY_NAME["pg_catalog", name])
        rows = _ROWS.get(name, lambda _: iter(static_rows(name)))
    found = list(rows(visible))
    assert not found or not found[0].keys() - set(schema.names), name
    return pa.Table.from_pylist(found, schema)


@cache
def _constant(name: str) -> pa.Table:
    """Returns the rows of a table that are the same in every database."""
    return _table(name, Visible(BARE, Viewpoint("", ())))
