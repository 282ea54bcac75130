"""Rows of PostgreSQL's system tables, from one state of the catalog as one database sees it.

`CatalogRows(state, viewpoint)[name]` is the Arrow table of `pg_class` and the like, built when it is first asked for.
A relation that is not told of here is empty, or is a view over others (`views.sql`). Rows that PostgreSQL has from the
start (types, access methods, ...) are in `static`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pyarrow as pa

from catalog import builtin
from catalog.objects import (
    CatalogState,
    Column,
    Index,
    Item,
    MaterializedView,
    ObjectId,
    Schema,
    SystemTable,
    Table,
    View,
)
from protocol.pgwire.types import parse_type
from server.execution.planning import plan_stored
from server.execution.show import definition_text
from server.pg_catalog import oids
from server.pg_catalog.static import (
    BY_ID,
    BY_NAME,
    Row,
    is_array,
    operator_classes,
    schema_of,
    static,
    static_rows,
    system_type,
    type_text,
    types_by_name,
    types_by_oid,
)
from server.settings import VARIABLES
from server.sql.functions import aggregates as _rows_of_the_function_table  # noqa: F401
from server.sql.functions.table import FUNCTIONS, Function, Kind
from server.sql.lexer import RESERVED_WORDS, quote_identifier
from server.sql.scope import ID_SCHEMA


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """From where the catalogs are looked at. `search_path` is what the session's role may use of it."""

    database: str
    search_path: tuple[str, ...]


def _column_type(column: Column) -> tuple[int, int]:
    type = parse_type(column.type)
    return type.oid, type.typmod


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column as pg_attribute has it; `type` and `modifier` as PostgreSQL numbers them."""

    name: str
    type: int
    modifier: int
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint; PostgreSQL has an index for each."""

    oid: int
    name: str
    columns: tuple[int, ...]
    primary: bool


def keys_of(table: Table) -> list[Key]:
    """A table's keys under the names that PostgreSQL gives. The first of columns that are NOT NULL is the primary one:
    the catalog keeps no more of it."""
    places = {column.name: place for place, column in enumerate(table.columns, 1)}
    required = {column.name for column in table.columns if not column.nullable}
    primary = next((number for number, key in enumerate(table.keys) if required.issuperset(key)), None)
    return [
        Key(
            oids.key_oid(table.id, number),
            f"{table.name}_pkey" if number == primary else f"{table.name}_{'_'.join(key)}_key",
            tuple(places[name] for name in key),
            number == primary,
        )
        for number, key in enumerate(table.keys)
    ]


_PLAIN_KEY = re.compile(r'[a-z_][a-z0-9_$]*|"(?:[^"]|"")+"')


def _key_column(key: str, columns: tuple[Column, ...]) -> int:
    """The number of the column that an index key is; 0 for an expression."""
    text = key.strip()
    if not _PLAIN_KEY.fullmatch(text):
        return next((place for place, column in enumerate(columns, 1) if column.name == text), 0)
    name = text[1:-1].replace('""', '"') if text.startswith('"') else text
    return next((place for place, column in enumerate(columns, 1) if column.name == name), 0)


class CatalogRows:
    """The rows of every system table, by its name, as `viewpoint` sees them."""

    def __init__(self, state: CatalogState, viewpoint: Viewpoint) -> None:
        self.state, self.viewpoint = state, viewpoint
        self._built: dict[str, pa.Table] = {}

    def __contains__(self, name: str) -> bool:
        return name in _ROWS or name in static()

    def __getitem__(self, name: str) -> pa.Table:
        """Any table of pg_catalog, or a table of ours that functions look into. KeyError for another name."""
        table = self._built.get(name)
        if table is None:
            table = _constant(name) if name in _CONSTANT else self._build(name)
            if name in _HALF_CONSTANT and self.state is not _BARE:
                table = pa.concat_tables([_constant(name), table])
            self._built[name] = table
        return table

    @cached_property
    def relation(self) -> Callable[[str, str], pa.Table]:
        """A relation by the catalog engine's schema and name, without rows if there are none. KeyError."""

        def found(schema: str, name: str) -> pa.Table:
            if schema == "pg" and (name in self or name in HELPERS):
                return self[name]
            return schema_of(BY_NAME["pg_catalog" if schema == "pg" else "information_schema", name]).empty_table()

        return found

    def _build(self, name: str) -> pa.Table:
        if name in _HELPERS:
            schema, rows = _HELPERS[name]
        else:
            schema = schema_of(BY_NAME["pg_catalog", name])
            rows = _ROWS.get(name, lambda _: iter(static_rows(name)))
        found = list(rows(self))
        assert not found or not found[0].keys() - set(schema.names), name
        return pa.Table.from_pylist(found, schema)

    # -- what of the catalog this database shows ----------------------------------------------------------------

    @cached_property
    def schemas(self) -> list[Schema]:
        database = self.state.database_named(self.viewpoint.database)
        shown = (None, database.id if database is not None else None)
        return [schema for schema in self.state.schemas.values() if schema.database_id in shown]

    @cached_property
    def items(self) -> list[Item]:
        shown = {schema.id for schema in self.schemas}
        return [item for item in self.state.items.values() if item.schema_id in shown]

    @cached_property
    def listed(self) -> list[Item]:
        """The items whose rows are made here: users', and once for all the built-in ones."""
        return [item for item in self.items if isinstance(item, SystemTable) == (self.state is _BARE)]

    @cached_property
    def indexed(self) -> frozenset[ObjectId]:
        return frozenset(item.on for item in self.items if isinstance(item, Index))

    @cached_property
    def path(self) -> list[Schema]:
        """The schemas in which an unqualified name is sought, first one first."""
        by_name = {schema.name: schema for schema in self.schemas}
        named = self.viewpoint.search_path
        names = (*(s for s in ("pg_catalog", "mz_catalog") if s not in named), *named)
        return [by_name[name] for name in dict.fromkeys(names) if name in by_name]

    @cached_property
    def relations(self) -> list[tuple[int, str, Schema]]:
        """OID, name and schema of everything that pg_class has."""
        schemas = {schema.id: schema for schema in self.schemas}
        found = [(oids.oid_of(item.id), item.name, schemas[item.schema_id]) for item in self.items]
        for item in self.items:
            if isinstance(item, Table):
                found += [(key.oid, key.name, schemas[item.schema_id]) for key in keys_of(item)]
        return found

    @cached_property
    def _visible(self) -> dict[str, tuple[int, Schema]]:
        """What an unqualified name of a relation means."""
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
        """What is told to be visible: not our own system tables, so that `\\dt` lists users' tables alone."""
        named = self.viewpoint.search_path
        hidden = {builtin.MZ_CATALOG.id} if builtin.MZ_CATALOG.name not in named else set()
        return frozenset(oid for oid, schema in self._visible.values() if schema.id not in hidden)

    def named(self, parts: Sequence[str]) -> int | None:
        """The OID of a relation by its name, of one to three parts."""
        if len(parts) == 1:
            found = self._visible.get(parts[0])
            return found[0] if found is not None else None
        return self._by_name.get((parts[-2], parts[-1]))

    @cached_property
    def relation_names(self) -> dict[int, str]:
        """The text of a regclass: with its schema only where it needs one."""
        return {
            oid: quote_identifier(name)
            if oid in self.shown
            else f"{quote_identifier(schema.name)}.{quote_identifier(name)}"
            for oid, name, schema in self.relations
        }

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], int]:
        return {(schema.name, name): oid for oid, name, schema in self.relations}

    def view_text(self, view: View | MaterializedView) -> str:
        """A view's query as pg_get_viewdef tells it, on one line."""
        names = {}
        for id in view.uses:
            item = self.state.items[id]
            full = self.state.full_name(item)
            names[id] = full[-1:] if oids.oid_of(id) in self.shown else full[-2:]
        return f" {definition_text(view.query, tuple(sorted(names.items())))};"

    # -- tables --------------------------------------------------------------------------------------------------

    def namespaces(self) -> Iterator[Row]:
        for schema in self.schemas:
            yield {"oid": oids.oid_of(schema.id), "nspname": schema.name, "nspowner": self.owner(schema.id)}

    def databases(self) -> Iterator[Row]:
        for database in self.state.databases.values():
            yield {
                "oid": oids.oid_of(database.id),
                "datname": database.name,
                "datdba": self.owner(database.id),
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
            }

    def roles(self) -> Iterator[Row]:
        for role in self.state.roles.values():
            yield {
                "oid": oids.oid_of(role.id),
                "rolname": role.name,
                "rolsuper": role.superuser,
                "rolinherit": role.inherit,
                "rolcreaterole": role.superuser,
                "rolcreatedb": role.create_db,
                "rolcanlogin": role.login,
                "rolreplication": False,
                "rolbypassrls": role.superuser,
                "rolconnlimit": -1,
            }

    def members(self) -> Iterator[Row]:
        for role in self.state.roles.values():
            for of in sorted(role.member_of):
                yield {
                    "oid": oids.membership_oid(role.id, of),
                    "roleid": oids.oid_of(of),
                    "member": oids.oid_of(role.id),
                    "grantor": oids.OWNER,
                    "admin_option": False,
                    "inherit_option": role.inherit,
                    "set_option": True,
                }

    def owner(self, id: ObjectId) -> int:
        return oids.oid_of(self.state.owner(id))

    def attributes_of(self, item: Item) -> list[Attribute]:
        if isinstance(item, SystemTable) and item.id in builtin.PG_TABLES:
            relation = BY_ID[item.id]
            return [Attribute(c.name, *system_type(c.type), c.nullable) for c in relation.columns]
        if isinstance(item, Index):
            columns = self.state.items[item.on].columns
            places = [_key_column(key, columns) for key in item.keys]
            return [
                Attribute(columns[place - 1].name, *_column_type(columns[place - 1]), True)
                if place
                else Attribute("expr", *self._expression_type(item, key), True)
                for key, place in zip(item.keys, places, strict=True)
            ]
        return [
            Attribute(c.name, *_column_type(c), c.nullable or isinstance(item, View | MaterializedView), c.default)
            for c in item.columns
        ]

    def _expression_type(self, index: Index, key: str) -> tuple[int, int]:
        relation = f"{quote_identifier(ID_SCHEMA)}.{quote_identifier(index.on)}"
        (field,) = plan_stored(f"SELECT {key} FROM {relation}", self.state).columns
        return field.type.oid, field.type.typmod

    def classes(self) -> Iterator[Row]:
        for item in self.listed:
            yield self._class(
                oids.oid_of(item.id),
                item.name,
                item.schema_id,
                self.owner(item.id),
                _KINDS[type(item)] if item.id not in builtin.PG_TABLES else BY_ID[item.id].kind,
                len(self.attributes_of(item)),
                indexed=item.id in self.indexed or bool(isinstance(item, Table) and item.keys),
            )
            if isinstance(item, Table):
                for key in keys_of(item):
                    yield self._class(key.oid, key.name, item.schema_id, self.owner(item.id), "i", len(key.columns))

    @staticmethod
    def _class(
        oid: int, name: str, schema: ObjectId, owner: int, kind: str, width: int, *, indexed: bool = False
    ) -> Row:
        return {
            "oid": oid,
            "relname": name,
            "relnamespace": oids.oid_of(schema),
            "reltype": 0,
            "reloftype": 0,
            "relowner": owner,
            "relam": {"i": oids.BTREE, "r": oids.HEAP, "m": oids.HEAP}.get(kind, 0),
            "relfilenode": 0 if kind == "v" else oid,
            "reltablespace": 0,
            "relpages": 0,
            "reltuples": -1.0,
            "relallvisible": 0,
            "reltoastrelid": 0,
            "relhasindex": indexed,
            "relisshared": False,
            "relpersistence": "p",
            "relkind": kind,
            "relnatts": width,
            "relchecks": 0,
            "relhasrules": kind in ("v", "m"),
            "relhastriggers": False,
            "relhassubclass": False,
            "relrowsecurity": False,
            "relforcerowsecurity": False,
            "relispopulated": True,
            "relreplident": "n" if oid < oids.USER_OBJECTS or kind in "vi" else "d",
            "relispartition": False,
            "relrewrite": 0,
            "relfrozenxid": 0,
            "relminmxid": 0,
        }

    def attributes(self) -> Iterator[Row]:
        for item in self.listed:
            found = self.attributes_of(item)
            for place, attribute in enumerate(found, 1):
                yield self._attribute(oids.oid_of(item.id), place, attribute)
            if isinstance(item, Table):
                for key in keys_of(item):
                    for place, column in enumerate(key.columns, 1):
                        yield self._attribute(key.oid, place, found[column - 1], indexed=True)

    @staticmethod
    def _attribute(relation: int, place: int, attribute: Attribute, *, indexed: bool = False) -> Row:
        type = types_by_oid()[attribute.type]
        return {
            "attrelid": relation,
            "attname": attribute.name,
            "atttypid": attribute.type,
            "attlen": type["typlen"],
            "attnum": place,
            "attcacheoff": -1,
            "atttypmod": attribute.modifier,
            "attndims": 1 if type["typcategory"] == "A" and not indexed else 0,
            "attbyval": type["typbyval"],
            "attalign": type["typalign"],
            "attstorage": type["typstorage"],
            "attcompression": "",
            "attnotnull": not attribute.nullable and not indexed,
            "atthasdef": attribute.default is not None and not indexed,
            "atthasmissing": False,
            "attidentity": "",
            "attgenerated": "",
            "attisdropped": False,
            "attislocal": True,
            "attinhcount": 0,
            "attstattarget": -1,
            "attcollation": type["typcollation"],
        }

    def defaults(self) -> Iterator[Row]:
        for item in self.items:
            for place, column in enumerate(item.columns, 1):
                if isinstance(item, Table) and column.default is not None:
                    yield {
                        "oid": oids.default_oid(item.id, place),
                        "adrelid": oids.oid_of(item.id),
                        "adnum": place,
                        "adbin": column.default,
                    }

    def indexes(self) -> Iterator[Row]:
        for item in self.items:
            if isinstance(item, Index):
                columns = self.state.items[item.on].columns
                places = [_key_column(key, columns) for key in item.keys]
                expressions = [key for key, place in zip(item.keys, places, strict=True) if not place]
                yield self._index(item.id, oids.oid_of(item.id), oids.oid_of(item.on), places, columns, expressions)
            elif isinstance(item, Table):
                for key in keys_of(item):
                    yield self._index(item.id, key.oid, oids.oid_of(item.id), list(key.columns), item.columns, [], key)

    @staticmethod
    def _index(
        _: ObjectId,
        oid: int,
        relation: int,
        places: list[int],
        columns: tuple[Column, ...],
        expressions: list[str],
        key: Key | None = None,
    ) -> Row:
        types = [types_by_oid()[_column_type(columns[p - 1])[0] if p else 25] for p in places]
        return {
            "indexrelid": oid,
            "indrelid": relation,
            "indnatts": len(places),
            "indnkeyatts": len(places),
            "indisunique": key is not None,
            "indnullsnotdistinct": False,
            "indisprimary": key is not None and key.primary,
            "indisexclusion": False,
            "indimmediate": True,
            "indisclustered": False,
            "indisvalid": True,
            "indcheckxmin": False,
            "indisready": True,
            "indislive": True,
            "indisreplident": False,
            "indkey": places,
            "indcollation": [type["typcollation"] for type in types],
            "indclass": [operator_classes().get(type["oid"], 0) for type in types],
            "indoption": [0 for _ in places],
            "indexprs": ", ".join(expressions) or None,
        }

    def constraints(self) -> Iterator[Row]:
        for item in self.items:
            for key in keys_of(item) if isinstance(item, Table) else ():
                yield {
                    "oid": key.oid,
                    "conname": key.name,
                    "connamespace": oids.oid_of(item.schema_id),
                    "contype": "p" if key.primary else "u",
                    "condeferrable": False,
                    "condeferred": False,
                    "convalidated": True,
                    "conrelid": oids.oid_of(item.id),
                    "contypid": 0,
                    "conindid": key.oid,
                    "conparentid": 0,
                    "confrelid": 0,
                    "confupdtype": " ",
                    "confdeltype": " ",
                    "confmatchtype": " ",
                    "conislocal": True,
                    "coninhcount": 0,
                    "connoinherit": True,
                    "conkey": list(key.columns),
                }

    def functions(self) -> Iterator[Row]:
        yield from static_rows("pg_proc")
        for functions in FUNCTIONS.values():
            for function in functions:
                row = _function(function)
                if row is not None:
                    yield row

    # -- what functions look into ----------------------------------------------------------------------------------

    def definitions(self) -> Iterator[Row]:
        """What pg_get_viewdef, pg_get_indexdef and pg_get_constraintdef tell; `place` 0 for all of it."""
        for item in self.items:
            oid = oids.oid_of(item.id)
            match item:
                case View() | MaterializedView():
                    yield {"oid": oid, "place": 0, "text": self.view_text(item)}
                case Index():
                    columns = self.state.items[item.on].columns
                    keys = [
                        quote_identifier(columns[place - 1].name) if place else _in_parentheses(key)
                        for key, place in ((key, _key_column(key, columns)) for key in item.keys)
                    ]
                    yield from self._index_definition(oid, item, "INDEX", oids.oid_of(item.on), keys)
                case Table():
                    for key in keys_of(item):
                        keys = [quote_identifier(item.columns[place - 1].name) for place in key.columns]
                        yield from self._index_definition(key.oid, key, "UNIQUE INDEX", oid, keys)
                case _:
                    pass

    def _index_definition(
        self, oid: int, index: Index | Key, what: str, relation: int, keys: list[str]
    ) -> Iterator[Row]:
        schema, name = next((schema.name, name) for found, name, schema in self.relations if found == relation)
        on = f"{quote_identifier(schema)}.{quote_identifier(name)}"
        text = f"CREATE {what} {quote_identifier(index.name)} ON {on} USING btree ({', '.join(keys)})"
        yield {"oid": oid, "place": 0, "text": text}
        for place, key in enumerate(keys, 1):
            yield {"oid": oid, "place": place, "text": key}

    def constraint_definitions(self) -> Iterator[Row]:
        for item in self.items:
            for key in keys_of(item) if isinstance(item, Table) else ():
                names = ", ".join(quote_identifier(item.columns[place - 1].name) for place in key.columns)
                yield {"oid": key.oid, "text": f"{'PRIMARY KEY' if key.primary else 'UNIQUE'} ({names})"}

    def type_texts(self) -> Iterator[Row]:
        """What format_type makes a type's name from; of an array `base` is the element's type."""
        for row in static_rows("pg_type"):
            array = is_array(row)
            base = row["typelem"] if array else row["oid"]
            yield {"oid": row["oid"], "base": base, "text": type_text(base), "dimensions": "[]" if array else ""}

    def function_texts(self) -> Iterator[Row]:
        for row in self["pg_proc"].select(["oid", "proname", "proargtypes", "prorettype"]).to_pylist():
            texts = [type_text(type) for type in row["proargtypes"]]
            result = type_text(row["prorettype"])
            yield {
                "oid": row["oid"],
                "name": row["proname"],
                "arguments": ", ".join(texts),
                "result": result,
                "definition": f"CREATE OR REPLACE FUNCTION pg_catalog.{quote_identifier(row['proname'])}"
                f"({', '.join(texts)})\n RETURNS {result}\n LANGUAGE internal\n IMMUTABLE PARALLEL SAFE STRICT\n"
                f"AS $function${row['proname']}$function$\n",
            }

    def session(self) -> Iterator[Row]:
        yield {"database": self.viewpoint.database}

    def relation_texts(self) -> Iterator[Row]:
        return ({"oid": oid, "text": text, "visible": oid in self.shown} for oid, text in self.relation_names.items())


def _in_parentheses(key: str) -> str:
    return key if key.startswith("(") and key.endswith(")") else f"({key})"


_KINDS: dict[type[Any], str] = {Table: "r", SystemTable: "r", View: "v", MaterializedView: "m", Index: "i"}


def _function(function: Function) -> Row | None:
    """A function as pg_proc has it; None if it is of types that PostgreSQL does not know by these names."""
    types = types_by_name()
    names = [type.name for type in (*function.arguments, function.result)]
    if any(name not in types for name in names):
        return None
    *arguments, result = (types[name]["oid"] for name in names)
    return {
        "oid": oids.function_oid(str(function)),
        "proname": function.name,
        "pronamespace": oids.PG_CATALOG,
        "proowner": oids.OWNER,
        "prolang": 12,
        "procost": 1.0,
        "prorows": 0.0,
        "provariadic": arguments[-1] if function.variadic and arguments else 0,
        "prosupport": 0,
        "prokind": {Kind.SCALAR: "f", Kind.AGGREGATE: "a", Kind.WINDOW: "w"}[function.kind],
        "prosecdef": False,
        "proleakproof": False,
        "proisstrict": True,
        "proretset": False,
        "provolatile": "i",
        "proparallel": "s",
        "pronargs": len(arguments),
        "pronargdefaults": 0,
        "prorettype": result,
        "proargtypes": arguments,
        "prosrc": function.name,
    }


def settings_rows(settings: Mapping[str, str]) -> pa.Table:
    """pg_settings of a session."""
    rows = [
        {
            "name": name,
            "setting": settings[name],
            "category": "Tidewire",
            "context": "internal" if VARIABLES[name.lower()].fixed else "user",
            "vartype": "string",
            "source": "default" if settings[name] == VARIABLES[name.lower()].default else "session",
            "boot_val": VARIABLES[name.lower()].default,
            "reset_val": VARIABLES[name.lower()].default,
            "pending_restart": False,
        }
        for name in settings
    ]
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_settings"]))


Rows = Callable[[CatalogRows], Iterator[Row]]
_ROWS: dict[str, Rows] = {
    "pg_attrdef": CatalogRows.defaults,
    "pg_attribute": CatalogRows.attributes,
    "pg_auth_members": CatalogRows.members,
    "pg_authid": CatalogRows.roles,
    "pg_class": CatalogRows.classes,
    "pg_constraint": CatalogRows.constraints,
    "pg_database": CatalogRows.databases,
    "pg_index": CatalogRows.indexes,
    "pg_namespace": CatalogRows.namespaces,
    "pg_proc": CatalogRows.functions,
}
_TEXTS = [("oid", pa.uint32()), ("text", pa.string())]
_HELPERS: dict[str, tuple[pa.Schema, Rows]] = {
    "tw_relations": (pa.schema([*_TEXTS, ("visible", pa.bool_())]), CatalogRows.relation_texts),
    "tw_definitions": (pa.schema([*_TEXTS, ("place", pa.int32())]), CatalogRows.definitions),
    "tw_constraints": (pa.schema(_TEXTS), CatalogRows.constraint_definitions),
    "tw_types": (
        pa.schema([*_TEXTS, ("base", pa.uint32()), ("dimensions", pa.string())]),
        CatalogRows.type_texts,
    ),
    "tw_functions": (
        pa.schema([("oid", pa.uint32()), *((n, pa.string()) for n in ("name", "arguments", "result", "definition"))]),
        CatalogRows.function_texts,
    ),
    "tw_session": (pa.schema([("database", pa.string())]), CatalogRows.session),
    "tw_reserved": (
        pa.schema([("word", pa.string())]),
        lambda _: ({"word": word} for word in sorted(RESERVED_WORDS)),
    ),
}
HELPERS = tuple(_HELPERS)


def helper_schema(name: str) -> pa.Schema:
    return _HELPERS[name][0]


_BARE = CatalogState(
    databases={},
    schemas={schema.id: schema for schema in builtin.SCHEMAS},
    items={table.id: table for table in builtin.TABLES},
    next_id=1,
)
"""A catalog in which nobody has made anything."""
_CONSTANT = frozenset(("pg_proc", "tw_functions", "tw_types", "tw_reserved", *static()))
_HALF_CONSTANT = frozenset(("pg_attribute", "pg_class"))


@cache
def _constant(name: str) -> pa.Table:
    """The rows of a table, or those of its rows, that are the same in every database."""
    return CatalogRows(_BARE, Viewpoint("", ()))._build(name)
