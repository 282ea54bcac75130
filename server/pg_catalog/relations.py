"""The rows of pg_class, pg_attribute and pg_attrdef."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog import builtin
from catalog.ids import USER_OBJECTS, ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.namespaces import is_temporary
from catalog.objects.relations import DerivedRelation, Relation
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.types import parse_type
from server.pg_catalog import oids
from server.pg_catalog.acls import column_acl_of
from server.pg_catalog.keys import key_column_number, keys_of
from server.pg_catalog.static import BY_ID, METHODS, Row, column_type, system_type
from server.pg_catalog.type_rows import has_row_type
from server.pg_catalog.visible import Visible
from server.sql.grammar.lexer import quote_identifier
from server.sql.index_keys import called_function
from server.sql.scope import ID_SCHEMA
from server.sql.stored_query import plan_stored


def _relkind(item: Item) -> str:
    assert item.relkind is not None
    return BY_ID[item.id].kind if item.id in builtin.PG_TABLES else item.relkind


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column for pg_attribute. `type` is the type's OID, `modifier` the type modifier; others as in the catalog."""

    name: str
    type: int
    modifier: int
    nullable: bool
    default: str | None = None
    identity: str = ""
    generated: str = ""
    dimensions: int = 1


def attributes_of(visible: Visible, item: Item) -> list[Attribute]:
    """Returns the columns of a relation or an index. The column of an index expression is named after
    the function that it calls, else `expr`."""
    if item.id in builtin.PG_TABLES:
        relation = BY_ID[item.id]
        return [Attribute(c.name, *system_type(c.type), c.nullable) for c in relation.columns]
    if isinstance(item, Index):
        columns = visible.state.relation(item.on).columns
        numbers = [key_column_number(key, columns) for key in (*item.keys, *item.included)]
        return [
            Attribute(columns[number - 1].name, *column_type(columns[number - 1]), True)
            if number
            else Attribute(called_function(key) or "expr", *_expression_type(visible, item, key), True)
            for key, number in zip((*item.keys, *item.included), numbers, strict=True)
        ]
    assert isinstance(item, Relation)
    return [
        Attribute(
            c.name,
            *column_type(c),
            c.nullable or isinstance(item, DerivedRelation),
            c.default,
            c.identity,
            c.generated,
            parse_type(c.type).dimensions,
        )
        for c in item.columns
    ]


def _expression_type(visible: Visible, index: Index, key: str) -> tuple[int, int]:
    relation = f"{quote_identifier(ID_SCHEMA)}.{quote_identifier(index.on)}"
    (field,) = plan_stored(f"SELECT {key} FROM {relation}", visible.state).columns
    return field.type.oid, field.type.typmod


def classes(visible: Visible) -> Iterator[Row]:
    """pg_class: the listed relations, and the indexes of their keys."""
    for item in visible.listed:
        yield _class(
            oids.oid_of(item.id),
            item.name,
            item.schema_id,
            visible.owner(item.id),
            _relkind(item),
            len(attributes_of(visible, item)),
            indexed=item.id in visible.indexed or bool(keys_of(item)),
            temporary=is_temporary(visible.state.schemas[item.schema_id]),
            checks=len(item.checks) if isinstance(item, Table) else 0,
            triggers=item.id in visible.with_foreign_keys,
            acl=visible.acl(item.id),
            method=METHODS[item.method] if isinstance(item, Index) else 0,
            options=[f"check_option={item.check_option}"] if isinstance(item, View) and item.check_option else None,
            row_type=oids.row_type_oid(item.id) if has_row_type(item) else 0,
        )
        for key in keys_of(item):
            yield _class(key.oid, key.name, item.schema_id, visible.owner(item.id), "i", len(key.columns))


def _class(
    oid: int,
    name: str,
    schema: ObjectId,
    owner: int,
    kind: str,
    width: int,
    *,
    indexed: bool = False,
    temporary: bool = False,
    checks: int = 0,
    triggers: bool = False,
    acl: list[str] | None = None,
    method: int = 0,
    options: list[str] | None = None,
    row_type: int = 0,
) -> Row:
    return {
        "oid": oid,
        "relname": name,
        "relnamespace": oids.oid_of(schema),
        "reltype": row_type,
        "reloftype": 0,
        "relowner": owner,
        "relam": method or {"i": oids.BTREE, "r": oids.HEAP, "m": oids.HEAP}.get(kind, 0),
        "relfilenode": 0 if kind == "v" else oid,
        "reltablespace": 0,
        "relpages": 0,
        "reltuples": -1.0,
        "relallvisible": 0,
        "reltoastrelid": 0,
        "relhasindex": indexed,
        "relisshared": False,
        "relpersistence": "t" if temporary else "p",
        "relkind": kind,
        "relnatts": width,
        "relchecks": checks,
        "relhasrules": kind in ("v", "m"),
        "relhastriggers": triggers,
        "relhassubclass": False,
        "relrowsecurity": False,
        "relforcerowsecurity": False,
        "relispopulated": True,
        "relreplident": "n" if oid < USER_OBJECTS or kind in "vi" else "d",
        "relispartition": False,
        "relrewrite": 0,
        "relfrozenxid": 0,
        "relminmxid": 0,
        "relacl": acl,
        "reloptions": options,
    }


def attributes(visible: Visible) -> Iterator[Row]:
    """pg_attribute: the columns of the relations in `classes`."""
    for item in visible.listed:
        found = attributes_of(visible, item)
        for number, attribute in enumerate(found, 1):
            acl = column_acl_of(visible, item.id, number)
            yield _attribute(visible, oids.oid_of(item.id), number, attribute, acl=acl)
        for key in keys_of(item):
            for number, column in enumerate(key.columns, 1):
                yield _attribute(visible, key.oid, number, found[column - 1], indexed=True)


def _has_expression(attribute: Attribute | Column) -> bool:
    """Whether pg_attrdef has a row for a column."""
    return bool(attribute.generated) or (attribute.default is not None and not attribute.identity)


def _attribute(
    visible: Visible,
    relation: int,
    number: int,
    attribute: Attribute,
    *,
    indexed: bool = False,
    acl: list[str] | None = None,
) -> Row:
    type = visible.type(attribute.type)
    return {
        "attrelid": relation,
        "attname": attribute.name,
        "atttypid": attribute.type,
        "attlen": type["typlen"],
        "attnum": number,
        "attcacheoff": -1,
        "atttypmod": attribute.modifier,
        "attndims": attribute.dimensions if type["typcategory"] == "A" and not indexed else 0,
        "attbyval": type["typbyval"],
        "attalign": type["typalign"],
        "attstorage": type["typstorage"],
        "attcompression": "",
        "attnotnull": not attribute.nullable and not indexed,
        "atthasdef": _has_expression(attribute) and not indexed,
        "atthasmissing": False,
        "attidentity": "" if indexed else attribute.identity,
        "attgenerated": "s" if attribute.generated and not indexed else "",
        "attisdropped": False,
        "attislocal": True,
        "attinhcount": 0,
        "attstattarget": -1,
        "attcollation": type["typcollation"],
        "attacl": acl,
    }


def defaults(visible: Visible) -> Iterator[Row]:
    """pg_attrdef"""
    for item in visible.items:
        for number, column in enumerate(item.columns if isinstance(item, Relation) else (), 1):
            if _has_expression(column):
                text = (
                    visible.text_of(column.generated)
                    if column.generated
                    else visible.default_text(parse_type(column.type), column.default or "")
                )
                yield {
                    "oid": oids.default_oid(item.id, number),
                    "adrelid": oids.oid_of(item.id),
                    "adnum": number,
                    "adbin": text,
                }
