"""The rows of user-defined types, and of the row types of relations, in pg_type, pg_enum and tw_types."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.ids import user_oid
from catalog.objects.catalog_object import Item
from catalog.objects.system_tables import SystemTable
from catalog.objects.types import Domain, EnumType
from protocol.pgwire.types import parse_type
from server.pg_catalog.oids import function_oid, row_array_oid, row_type_oid
from server.pg_catalog.static import Row, types_by_name

_INPUT_AND_OUTPUT = {"typinput": 3506, "typoutput": 3507, "typreceive": 3532, "typsend": 3533}  # enum_in, ...


def enum_rows(item: EnumType, schema: int, owner: int, acl: list[str] | None) -> tuple[Row, Row]:
    """The rows of an enumerated type and of its array type in pg_type. `schema` and `owner`: OIDs. `acl`: aclitems."""
    own, array = user_oid(item.id), user_oid(item.array_id)
    common = {**types_by_name()["uuid"], "typnamespace": schema, "typowner": owner}
    enum = {
        **common,
        **_INPUT_AND_OUTPUT,
        "oid": own,
        "typname": item.name,
        "typlen": 4,
        "typbyval": True,
        "typtype": "e",
        "typcategory": "E",
        "typarray": array,
        "typalign": "i",
        "typacl": acl,
    }
    return enum, array_row(array, own, f"_{item.name}", schema, owner)


def domain_row(item: Domain, base: Row, default: str | None, schema: int, owner: int, acl: list[str] | None) -> Row:
    """The row of a domain in pg_type. `base`: that of its base type. `default`: its default with names."""
    type = parse_type(item.base)
    return {
        **base,
        "oid": user_oid(item.id),
        "typname": item.name,
        "typnamespace": schema,
        "typowner": owner,
        "typtype": "d",
        "typispreferred": False,
        "typelem": 0,
        "typarray": 0,
        "typnotnull": item.not_null,
        "typbasetype": type.oid,
        "typtypmod": type.typmod,
        "typdefault": default,
        "typdefaultbin": default,
        "typacl": acl,
    }


def array_row(oid: int, element: int, name: str, schema: int, owner: int) -> Row:
    """The row of the array type of a user-defined type in pg_type."""
    common = types_by_name()["_uuid"]
    return {**common, "oid": oid, "typname": name, "typnamespace": schema, "typowner": owner, "typelem": element}


def has_row_type(item: Item) -> bool:
    """Whether pg_type has the type of the relation's rows. Those of built-in relations are missing."""
    return item.relkind in ("r", "v", "m") and not isinstance(item, SystemTable)


def row_type_rows(item: Item, schema: int, owner: int) -> tuple[Row, Row]:
    """The rows of the type of a relation's rows and of its array type in pg_type. `schema` and `owner`: OIDs."""
    own, array = row_type_oid(item.id), row_array_oid(item.id)
    row = {
        **types_by_name()["record"],
        "oid": own,
        "typname": item.name,
        "typnamespace": schema,
        "typowner": owner,
        "typtype": "c",
        "typcategory": "C",
        "typrelid": user_oid(item.id),
        "typarray": array,
    }
    elements = {**array_row(array, own, f"_{item.name}", schema, owner), "typalign": "d"}
    return row, elements


def label_rows(item: EnumType) -> Iterator[Row]:
    """The rows of an enumerated type in pg_enum. The OID of a label is computed from its position."""
    for number, (label, position) in enumerate(zip(item.labels, item.positions, strict=True), 1):
        yield {
            "oid": function_oid(f"{item.id} {position}"),
            "enumtypid": user_oid(item.id),
            "enumsortorder": float(number),
            "enumlabel": label,
        }
