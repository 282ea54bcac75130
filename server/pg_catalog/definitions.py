"""Helper tables for functions such as pg_get_viewdef: relation names, definitions of views, indexes and constraints.

Also which views, and which of their columns, are updatable.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.objects.columns import Check
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation, Relation
from catalog.objects.tables import Table
from catalog.objects.views import View
from server.pg_catalog import oids
from server.pg_catalog.keys import Key, key_column_number, keys_of
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible
from server.sql.foreign_keys import foreign_key_text
from server.sql.grammar.lexer import quote_identifier
from server.sql.index_keys import condition_text, ending_text, key_text, key_texts
from server.sql.stored_query import definition_text
from server.sql.writes.updatable_views import updatable_columns


def relation_texts(visible: Visible) -> Iterator[Row]:
    """tw_relations: the text of each regclass, and whether the relation is visible without its schema."""
    return ({"oid": oid, "text": text, "visible": oid in visible.shown} for oid, text in visible.relation_names.items())


def definitions(visible: Visible) -> Iterator[Row]:
    """tw_definitions: the results of pg_get_viewdef and pg_get_indexdef.

    `place` is the number of an index column, from 1; 0 for the whole definition.
    """
    for item in visible.items:
        oid = oids.oid_of(item.id)
        if isinstance(item, DerivedRelation):
            yield {"oid": oid, "place": 0, "text": _view_text(visible, item)}
        if isinstance(item, Index):
            columns = visible.state.relation(item.on).columns
            texts = [
                quote_identifier(columns[number - 1].name) if number else key_text(visible.text_of(key))
                for key, number in ((key, key_column_number(key, columns)) for key in item.keys)
            ]
            what = "UNIQUE INDEX" if item.is_unique else "INDEX"
            yield from _index_definition(visible, oid, item, what, oids.oid_of(item.on), texts)
            for place, name in enumerate(item.included, len(texts) + 1):
                yield {"oid": oid, "place": place, "text": name}
        if isinstance(item, Relation):
            for key in keys_of(item):
                names = [quote_identifier(item.columns[number - 1].name) for number in key.columns]
                what = "UNIQUE INDEX" if key.enforced else "INDEX"
                yield from _index_definition(visible, key.oid, key, what, oid, names)


def updatable(visible: Visible) -> Iterator[Row]:
    """tw_updatable: the automatically updatable views, with `place` 0, and the positions of their updatable columns."""
    views = [item for item in visible.items if isinstance(item, View)]
    found = updatable_columns(views, visible.state)
    for view in views:
        if view.id in found:
            places = (place for place, number in enumerate(found[view.id], 1) if number is not None)
            for place in (0, *places):
                yield {"oid": oids.oid_of(view.id), "place": place}


def _view_text(visible: Visible, view: DerivedRelation) -> str:
    """Returns a view's query as pg_get_viewdef does, but on one line."""
    names = {}
    for id in view.uses | view.types:
        item = visible.state.items[id]
        full = visible.state.full_name(item)
        names[id] = full[-1:] if _is_shown(visible, oids.oid_of(id)) else full[-2:]
    return f" {definition_text(view.query, tuple(sorted(names.items())))};"


def _is_shown(visible: Visible, oid: int) -> bool:
    """Whether a relation or type can be named without its schema."""
    return oid in visible.shown or visible.type_names.get(oid, ("", False))[1]


def _index_definition(
    visible: Visible, oid: int, index: Index | Key, what: str, relation: int, keys: list[str]
) -> Iterator[Row]:
    schema, name = next((schema.name, name) for found, name, schema in visible.relations if found == relation)
    on = f"{quote_identifier(schema)}.{quote_identifier(name)}"
    if isinstance(index, Index):
        method, shown, ending = index.method, key_texts(index, tuple(keys)), ending_text(index)
        condition = condition_text(visible.text_of(index.condition))
        where = f" WHERE {condition}" if condition else ""
    else:
        where = ""
        method, shown, ending = "btree", keys, "" if index.nulls_distinct else " NULLS NOT DISTINCT"
    text = f"CREATE {what} {quote_identifier(index.name)} ON {on} USING {method} ({', '.join(shown)}){ending}{where}"
    yield {"oid": oid, "place": 0, "text": text}
    for place, key in enumerate(keys, 1):
        yield {"oid": oid, "place": place, "text": key}


def constraint_definitions(visible: Visible) -> Iterator[Row]:
    """tw_constraints: the results of pg_get_constraintdef."""
    for domain in visible.domains:
        for number, check in enumerate(domain.checks):
            yield {"oid": oids.check_oid(domain.id, number), "text": _check_text(visible, check)}
    for item in visible.items:
        if isinstance(item, Table):
            for number, check in enumerate(item.checks):
                yield {"oid": oids.check_oid(item.id, number), "text": _check_text(visible, check)}
            for foreign_key in item.foreign_keys:
                referenced = visible.relation_names[oids.oid_of(foreign_key.referenced)]
                text = foreign_key_text(foreign_key, referenced)
                yield {"oid": oids.foreign_key_oid(item.id, foreign_key.number), "text": text}
        if isinstance(item, Relation):
            for key in keys_of(item):
                names = ", ".join(quote_identifier(item.columns[number - 1].name) for number in key.columns)
                yield {"oid": key.oid, "text": f"{key.text} ({names}){key.attributes}"}


def _check_text(visible: Visible, check: Check) -> str:
    return f"CHECK ({condition_text(visible.text_of(check.expression))}){'' if check.is_valid else ' NOT VALID'}"
