"""The rows of pg_index and pg_constraint."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.objects import Check, Column, Domain, Index, Relation, Table
from server.pg_catalog import oids
from server.pg_catalog.keys import key_column_number, keys_of
from server.pg_catalog.static import Row, column_type, operator_classes
from server.pg_catalog.visible import Visible


def indexes(visible: Visible) -> Iterator[Row]:
    """pg_index: the indexes, and one index per key, as in PostgreSQL."""
    for item in visible.items:
        if isinstance(item, Index):
            columns = visible.state.relation(item.on).columns
            numbers = [key_column_number(key, columns) for key in item.keys]
            expressions = [key for key, number in zip(item.keys, numbers, strict=True) if not number]
            oid, on = oids.oid_of(item.id), oids.oid_of(item.on)
            yield _index(visible, oid, on, numbers, columns, expressions, item.is_unique, item.nulls_distinct)
        elif isinstance(item, Relation):
            for key in keys_of(item):
                yield _index(
                    visible,
                    key.oid,
                    oids.oid_of(item.id),
                    list(key.columns),
                    item.columns,
                    [],
                    key.enforced,
                    key.nulls_distinct,
                    primary=key.primary,
                )


def _index(
    visible: Visible,
    oid: int,
    relation: int,
    numbers: list[int],
    columns: tuple[Column, ...],
    expressions: list[str],
    unique: bool,
    nulls_distinct: bool,
    *,
    primary: bool = False,
) -> Row:
    types = [visible.type(column_type(columns[n - 1])[0] if n else 25) for n in numbers]
    return {
        "indexrelid": oid,
        "indrelid": relation,
        "indnatts": len(numbers),
        "indnkeyatts": len(numbers),
        "indisunique": unique,
        "indnullsnotdistinct": not nulls_distinct,
        "indisprimary": primary,
        "indisexclusion": False,
        "indimmediate": True,
        "indisclustered": False,
        "indisvalid": True,
        "indcheckxmin": False,
        "indisready": True,
        "indislive": True,
        "indisreplident": False,
        "indkey": numbers,
        "indcollation": [type["typcollation"] for type in types],
        "indclass": [operator_classes().get(type["oid"], 0) for type in types],
        "indoption": [0 for _ in numbers],
        "indexprs": ", ".join(expressions) or None,
    }


def constraints(visible: Visible) -> Iterator[Row]:
    """pg_constraint: the keys and CHECK constraints of tables, and those of domains."""
    for domain in visible.domains:
        for number, check in enumerate(domain.checks):
            yield _check(domain, number, check)
    for item in visible.items:
        if isinstance(item, Table):
            for number, check in enumerate(item.checks):
                yield _check(item, number, check)
        for key in keys_of(item):
            yield {
                "oid": key.oid,
                "conname": key.name,
                "connamespace": oids.oid_of(item.schema_id),
                "contype": "p" if key.primary else "u",
                "condeferrable": False,
                "condeferred": False,
                "convalidated": key.enforced,
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


def _check(item: Table | Domain, number: int, check: Check) -> Row:
    return {
        "oid": oids.check_oid(item.id, number),
        "conname": check.name,
        "connamespace": oids.oid_of(item.schema_id),
        "contype": "c",
        "condeferrable": False,
        "condeferred": False,
        "convalidated": check.is_valid,
        "conrelid": oids.oid_of(item.id) if isinstance(item, Table) else 0,
        "contypid": oids.oid_of(item.id) if isinstance(item, Domain) else 0,
        "conindid": 0,
        "conparentid": 0,
        "confrelid": 0,
        "confupdtype": " ",
        "confdeltype": " ",
        "confmatchtype": " ",
        "conislocal": True,
        "coninhcount": 0,
        "connoinherit": False,
        "conkey": [],
    }
