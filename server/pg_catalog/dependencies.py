"""The rows of pg_depend, pg_extension and pg_rewrite.

`mz_catalog` and `mz_internal` belong to an extension, so that pg_dump and other tools do not take them for the users'.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog import builtin
from catalog.ids import USER_OBJECTS, ObjectId, types_in
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation, Relation
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from protocol.pgwire.types import parse_type
from server.pg_catalog import oids
from server.pg_catalog.keys import key_column_number
from server.pg_catalog.static import Row, column_type
from server.pg_catalog.visible import BARE, Visible

_OBJECT = tuple[int, int, int]
"""The OID of the catalog of an object, the object's OID, and the number of a column or 0."""


def extensions(_: Visible) -> Iterator[Row]:
    """pg_extension. plpgsql is there as in each database of PostgreSQL, although it has no functions here."""
    for oid, name in ((oids.PLPGSQL, "plpgsql"), (oids.EXTENSION, "tidewire")):
        yield {
            "oid": oid,
            "extname": name,
            "extowner": oids.OWNER,
            "extnamespace": oids.PG_CATALOG,
            "extrelocatable": False,
            "extversion": "1.0",
        }


def rules(visible: Visible) -> Iterator[Row]:
    """pg_rewrite: for each view the rule that PostgreSQL has, to which the view's dependencies belong."""
    for view in _views_of(visible):
        yield {
            "oid": oids.rule_oid(view.id),
            "rulename": "_RETURN",
            "ev_class": oids.oid_of(view.id),
            "ev_type": "1",
            "ev_enabled": "O",
            "is_instead": True,
        }


def dependencies(visible: Visible) -> Iterator[Row]:
    """pg_depend, as in PostgreSQL: `a` and `i` of parts, `n` of what an object needs, `e` of members of an extension.

    Omits the dependencies of objects on their schemas, and of constraints.
    """
    if visible.state is BARE:
        for object in _built_in():
            yield _row(object, (oids.PG_EXTENSION, oids.EXTENSION, 0), "e")
        return
    for view in _views_of(visible):
        rule = (oids.PG_REWRITE, oids.rule_oid(view.id), 0)
        yield _row(rule, _relation(view.id), "i")
        for id in view.uses:
            yield _row(rule, _relation(id), "n")
        for id in view.types:
            yield _row(rule, _type(id), "n")
    for item in visible.items:
        match item:
            case Sequence():
                if item.owner_table is not None:
                    column = _relation(item.owner_table, _column_number(visible, item))
                    yield _row(_relation(item.id), column, "i" if item.is_identity else "a")
            case Index():
                columns = visible.state.relation(item.on).columns
                for number in {key_column_number(key, columns) for key in (*item.keys, *item.included)}:
                    yield _row(_relation(item.id), _relation(item.on, number), "a")
            case Table():
                yield from _of_columns(item)
            case _:
                pass
    for enum in visible.enums:
        yield _row(_type(enum.array_id), _type(enum.id), "i")
    for domain in visible.domains:
        for type in _types_of(domain, visible):
            yield _row(_type(domain.id), (oids.PG_TYPE, type, 0), "n")


def _built_in() -> Iterator[_OBJECT]:
    """The members of the extension."""
    schemas = (builtin.MZ_CATALOG.id, builtin.MZ_INTERNAL.id)
    for schema in schemas:
        yield oids.PG_NAMESPACE, oids.oid_of(schema), 0
    for table in builtin.TABLES:
        if table.schema_id in schemas:
            yield _relation(table.id)


def _of_columns(table: Table) -> Iterator[Row]:
    """The types of the columns, and what their defaults use."""
    for number, column in enumerate(table.columns, 1):
        type = column_type(column)[0]
        if type >= USER_OBJECTS:
            yield _row(_relation(table.id, number), (oids.PG_TYPE, type, 0), "n")
        text = column.generated or column.default
        if text and not column.identity:
            default = (oids.PG_ATTRDEF, oids.default_oid(table.id, number), 0)
            yield _row(default, _relation(table.id, number), "a")
            for id in column.sequences:
                yield _row(default, _relation(id), "n")
            for id in types_in(text):
                yield _row(default, _type(id), "n")


def _types_of(domain: Domain, visible: Visible) -> set[int]:
    """The OIDs of the user-defined types that a domain uses."""
    used = {oids.oid_of(id) for id in domain.depends_on if isinstance(visible.state.items.get(id), EnumType)}
    base = parse_type(domain.base).oid
    return used | {base} if base >= USER_OBJECTS else used


def _views_of(visible: Visible) -> Iterator[DerivedRelation]:
    return (item for item in visible.items if isinstance(item, DerivedRelation))


def _relation(id: ObjectId, column: int = 0) -> _OBJECT:
    return oids.PG_CLASS, oids.oid_of(id), column


def _type(id: ObjectId) -> _OBJECT:
    return oids.PG_TYPE, oids.oid_of(id), 0


def _column_number(visible: Visible, sequence: Sequence) -> int:
    assert sequence.owner_table is not None
    table = visible.state.items[sequence.owner_table]
    assert isinstance(table, Relation)
    return next((n for n, column in enumerate(table.columns, 1) if column.name == sequence.owner_column), 0)


def _row(object: _OBJECT, needed: _OBJECT, kind: str) -> Row:
    names = ("classid", "objid", "objsubid", "refclassid", "refobjid", "refobjsubid")
    return dict(zip(names, (*object, *needed), strict=True)) | {"deptype": kind}
