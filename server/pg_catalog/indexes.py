"""The rows of pg_index and pg_constraint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from catalog.foreign_keys import ForeignKey
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.relations import Relation
from catalog.objects.tables import Table
from catalog.objects.types import Domain
from catalog.references import referenced_key
from server.pg_catalog import oids
from server.pg_catalog.keys import key_column_number, keys_of
from server.pg_catalog.relations import attributes_of
from server.pg_catalog.static import Row, column_type, default_class, operator_class
from server.pg_catalog.visible import Visible
from server.sql.index_keys import condition_text
from server.sql.stored_columns import column_names


def indexes(visible: Visible) -> Iterator[Row]:
    """pg_index: the indexes, and one index per key, as in PostgreSQL."""
    for item in visible.items:
        if isinstance(item, Index):
            columns = visible.state.relation(item.on).columns
            numbers = [key_column_number(key, columns) for key in item.keys]
            included = [key_column_number(name, columns) for name in item.included]
            expressions = [key for key, number in zip(item.keys, numbers, strict=True) if not number]
            oid, on = oids.oid_of(item.id), oids.oid_of(item.on)
            row = _index(
                visible,
                oid,
                on,
                numbers,
                columns,
                expressions,
                item.is_unique,
                item.nulls_distinct,
                classes=item.classes,
                method=item.method,
                condition=condition_text(visible.text_of(item.condition)) or None,
                expression_types=[a.type for a in attributes_of(visible, item)[: len(numbers)]] if expressions else (),
            )
            row["indnatts"] += len(included)
            row["indkey"] = numbers + included
            row["indoption"] = list(item.options) or row["indoption"]
            yield row
        elif isinstance(item, Relation):
            for key in keys_of(item):
                row = _index(
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
                yield {**row, "indimmediate": not key.deferrable}


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
    classes: Sequence[str] = (),
    method: str = "btree",
    condition: str | None = None,
    expression_types: Sequence[int] = (),
) -> Row:
    """`expression_types`: the types of all keys, if one is an expression."""
    types = [visible.type(type) for type in expression_types or (column_type(columns[n - 1])[0] for n in numbers)]
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
        "indclass": [
            _class(name, type, method) for name, type in zip(classes or [""] * len(types), types, strict=True)
        ],
        "indoption": [0 for _ in numbers],
        "indexprs": ", ".join(expressions) or None,
        "indpred": condition,
    }


def _class(name: str, type: Row, method: str) -> int:
    """The OID of an operator class; 0 for a type that Tidewire does not index."""
    found = operator_class(name, method) if name else default_class(type["oid"], method)
    return 0 if found is None else int(found["oid"])


def constraints(visible: Visible) -> Iterator[Row]:
    """pg_constraint: the keys, the foreign keys and the CHECK constraints of tables, and those of domains."""
    for domain in visible.domains:
        for number, check in enumerate(domain.checks):
            oid = oids.check_oid(domain.id, number)
            yield _constraint(domain, oid, check.name, "c", convalidated=check.is_valid, connoinherit=False)
    for item in visible.items:
        if not isinstance(item, Table):
            continue
        numbers = {column.name: number for number, column in enumerate(item.columns, 1)}
        for number, check in enumerate(item.checks):
            named = [numbers[name] for name in column_names(check.expression)]
            yield _constraint(
                item,
                oids.check_oid(item.id, number),
                check.name,
                "c",
                convalidated=check.is_valid,
                connoinherit=False,
                conkey=named,
            )
        for key in keys_of(item):
            yield _constraint(
                item,
                key.oid,
                key.name,
                "p" if key.primary else "u",
                condeferrable=key.deferrable,
                condeferred=key.deferred,
                convalidated=key.enforced,
                conindid=key.oid,
                conkey=list(key.columns),
            )
        for foreign_key in item.foreign_keys:
            yield _foreign_key(visible, item, numbers, foreign_key)


def _foreign_key(visible: Visible, table: Table, numbers: Mapping[str, int], key: ForeignKey) -> Row:
    referenced = visible.state.relation(key.referenced)
    others = {column.name: number for number, column in enumerate(referenced.columns, 1)}
    relied = referenced_key(visible.state, key)
    index = 0
    if isinstance(relied, Index):
        index = oids.oid_of(relied.id)
    elif relied is not None:
        index = oids.key_oid(key.referenced, relied.number)
    return _constraint(
        table,
        oids.foreign_key_oid(table.id, key.number),
        key.name,
        "f",
        condeferrable=key.deferrable,
        condeferred=key.deferred,
        convalidated=False,
        conindid=index,
        confrelid=oids.oid_of(key.referenced),
        confupdtype=key.on_update,
        confdeltype=key.on_delete,
        confmatchtype=key.match,
        conkey=[numbers[name] for name in key.columns],
        confkey=[others[name] for name in key.others],
        confdelsetcols=[numbers[name] for name in key.set_columns] or None,
    )


def _constraint(item: Table | Domain, oid: int, name: str, kind: str, **given: object) -> Row:
    return {
        "oid": oid,
        "conname": name,
        "connamespace": oids.oid_of(item.schema_id),
        "contype": kind,
        "condeferrable": False,
        "condeferred": False,
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
        "connoinherit": True,
        **given,
    }
