"""Queries as the catalog stores them: SQL text that references relations by their ids."""

from __future__ import annotations

from catalog.ids import ObjectId
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation, Relation
from catalog.state import CatalogState
from server.sql.cached_texts import cached_by_length
from server.sql.grammar.lexer import Kind, quote_identifier, tokenize
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


def plan_stored(query: str, state: CatalogState, *, maintained: bool = True) -> QueryPlan:
    """Plans a view's stored query. It references all objects by id, so no session is needed."""
    return plan_query(parse_query(query), PlanContext(state, "", (), ""), None, maintained=maintained)


def definition(view: DerivedRelation, state: CatalogState) -> str:
    """A view's query with the current names of its relations."""
    return definition_text(
        view.query, tuple((id, state.full_name(state.items[id])) for id in sorted(view.uses | view.types))
    )


@cached_by_length((10_000, 256), (1_000_000, 4), length=lambda query, names: len(query) + 10 * len(names))
def definition_text(query: str, names: tuple[tuple[ObjectId, tuple[str, ...]], ...]) -> str:
    """A stored query in one line without comments, with names, of one to three parts, in place of ids."""
    names_by_id = dict(names)
    tokens, parts, at, end = tokenize(query), list[str](), 0, 0
    while (token := tokens[at]).kind is not Kind.END:
        if at > 0 and token.start > end:
            parts.append(" ")
        name = names_by_id.get(ObjectId(tokens[at + 2].value)) if token[:2] == (Kind.IDENT, ID_SCHEMA) else None
        if name is None:
            parts.append(query[token.start : token.end])
            at += 1
        else:
            parts.append(".".join(map(quote_identifier, name)))
            at += 3
            word, following = tokens[at : at + 2]
            is_former_name = word.value == "." and following.kind is Kind.IDENT  # of a type, see `type_names.by_id`
            if is_former_name or (word.value == "as" and following[:2] == (Kind.IDENT, name[-1])):
                at += 2
        end = tokens[at - 1].end
    return with_names("".join(parts), lambda id: ".".join(map(quote_identifier, names_by_id[id])))
