"""Queries as the catalog stores them: SQL text that references relations by their ids."""

from __future__ import annotations

import functools

from sqlglot import exp, parse_one

from catalog.ids import ObjectId
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation, Relation
from catalog.state import CatalogState
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.parts import Query
from server.sql.index_keys import index_keys
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.scope import ID_SCHEMA
from server.sql.sequence_names import with_names


def relation_query(relation: Relation, columns: tuple[str, ...] = ()) -> Query:
    """SELECT columns FROM the relation; all columns if none are given. The relation is referenced by its id."""
    chosen = columns or tuple(column.name for column in relation.columns)
    names = ", ".join(map(quote_identifier, chosen))
    return parse_query(f"SELECT {names} FROM {quote_identifier(ID_SCHEMA)}.{quote_identifier(relation.id)}")


def plan_index(index: Index, state: CatalogState) -> QueryPlan:
    """The rows of an index's relation, followed by the index keys that are expressions."""
    relation = state.relation(index.on)
    keys = zip(index_keys(relation.columns, index.keys), index.keys, strict=True)
    names = [quote_identifier(column.name) for column in relation.columns]
    names += [text for key, text in keys if not isinstance(key, int)]
    query = f"SELECT {', '.join(names)} FROM {quote_identifier(ID_SCHEMA)}.{quote_identifier(relation.id)}"
    return plan_stored(query, state)


def plan_stored(query: str, state: CatalogState) -> QueryPlan:
    """Plans a view's stored query. It references all objects by id, so no session is needed."""
    return plan_query(parse_query(query), PlanContext(state, "", (), ""), None, maintained=True)


def definition(view: DerivedRelation, state: CatalogState) -> str:
    """A view's query with the current names of its relations."""
    return definition_text(
        view.query, tuple((id, state.full_name(state.items[id])) for id in sorted(view.uses | view.types))
    )


@functools.lru_cache(256)
def definition_text(query: str, names: tuple[tuple[ObjectId, tuple[str, ...]], ...]) -> str:
    """A stored query with names, of one to three parts, in place of ids."""
    names_by_id: dict[str, tuple[str, ...]] = {str(id): full for id, full in names}
    tree = parse_one(query, dialect="postgres")
    for table in tree.find_all(exp.Table):
        full = names_by_id.get(table.name) if table.db == ID_SCHEMA else None
        if full is not None:
            database, schema, name = ("", "", *full)[-3:]
            table.set("this", exp.to_identifier(name))
            table.set("db", exp.to_identifier(schema) if schema else None)
            table.set("catalog", exp.to_identifier(database) if database else None)
            if table.alias == name:
                table.set("alias", None)
    text = tree.sql(dialect="postgres")
    return with_names(text, lambda id: ".".join(map(quote_identifier, names_by_id[id])))
