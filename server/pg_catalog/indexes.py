"""The rows of pg_index and pg_constraint."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.objects import Column, Index, Table
from server.pg_catalog import oids
from server.pg_catalog.keys import Key, key_place, keys_of
from server.pg_catalog.static import Row, column_type, operator_classes, types_by_oid
from server.pg_catalog.visible import Visible


def indexes(visible: Visible) -> Iterator[Row]:
    """pg_index: the indexes, and one index per key, as in PostgreSQL."""
    for item in visible.items:
        if isinstance(item, Index):
            columns = visible.state.items[item.on].columns
            places = [key_place(key, columns) for key in item.keys]
            expressions = [key for key, place in zip(item.keys, places, strict=True) if not place]
            yield _index(oids.oid_of(item.id), oids.oid_of(item.on), places, columns, expressions)
        elif isinstance(item, Table):
            for key in keys_of(item):
                yield _index(key.oid, oids.oid_of(item.id), list(key.columns), item.columns, [], key)


def _index(
    oid: int,
    relation: int,
    places: list[int],
    columns: tuple[Column, ...],
    expressions: list[str],
    key: Key | None = None,
) -> Row:
    types = [types_by_oid()[column_type(columns[p - 1])[0] if p else 25] for p in places]
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


def constraints(visible: Visible) -> Iterator[Row]:
    """pg_constraint: the keys of tables."""
    for item in visible.items:
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
