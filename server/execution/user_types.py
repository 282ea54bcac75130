"""User-defined types in statements, and in the columns of relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from catalog.ids import types_in
from catalog.objects.columns import Column
from catalog.objects.relations import Relation
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, array_of, parse_type
from server.authorization import privileges
from server.session_state.context import Context
from server.sql.grammar.statements.parts import NamedType
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.type_names import UserType, domain_use, resolved, type_of_item

DOMAIN_CHECKS_MAX = 5_000
"""The limit of the CHECK constraints of domains in a table: those of each column count. Writes plan each of them."""
DOMAIN_CHARS_MAX = 1 << 20  # the same, for the characters of the constraints and defaults, which each column stores
TYPE_CHARS_MAX = 1 << 20  # of the types of a relation's columns, each of which has the labels of an enumerated type


def known_type(context: Context, type: PgType) -> PgType:
    """The type that a statement names. PgError 42704 if there is none."""
    if not isinstance(type, NamedType):
        return type
    found, _ = resolved(context.state, type, context.settings["database"], context.search_path)
    return found


def known_column(context: Context, definition: ColumnDefinition) -> ColumnDefinition:
    """The definition of a column with the type, and the domain, that it names. PgError 42704, 42501."""
    if not isinstance(definition.type, NamedType):
        return definition
    state = context.state
    type, item = resolved(state, definition.type, context.settings["database"], context.search_path)
    privileges.require_type(state, context.role, item)
    return replace(definition, type=type, domain=domain_use(state, item) if isinstance(item, Domain) else None)


def with_type(state: CatalogState, item: UserType) -> CatalogState:
    """The state with a changed type or domain, also in the columns that have it."""
    return with_domain(state, item) if isinstance(item, Domain) else with_enum(state, item)


def with_domain(state: CatalogState, item: Domain) -> CatalogState:
    """The state with a changed domain, also in the columns of the tables that have it. PgError 54000."""
    state = state.with_item(item)
    use = domain_use(state, item)

    def with_use(table: Table) -> Table:
        columns = tuple(replace(c, domain=use) if c.domain and c.domain.id == item.id else c for c in table.columns)
        check_domains(table.name, columns, table.columns)
        return replace(table, columns=columns)

    return state.with_items(with_use(table) for table in state.items_of(Table) if item.id in table.depends_on)


def with_enum(state: CatalogState, item: EnumType) -> CatalogState:
    """The state with a changed type, also in the columns of the relations that have it.

    A column's type contains the labels. So a change of the labels changes the relations, and what was planned or
    computed with other labels is noticed in the same way as after ALTER TABLE.
    """
    state = state.with_item(item)
    scalar = type_of_item(state, item)

    @cache  # many columns can have the type, and its spelling can be long
    def changed(spelling: str) -> str:
        if item.id not in types_in(spelling):
            return spelling
        before = parse_type(spelling)
        is_array = before.element is not None
        return str(array_of(scalar, before.dimensions) if is_array else scalar)

    def retyped(column: Column) -> Column:
        spelling = changed(column.type)
        return column if spelling is column.type else replace(column, type=spelling)

    relations = [relation for relation in state.items_of(Relation) if item.id in relation.depends_on]
    domains = [domain for domain in state.items_of(Domain) if item.id in types_in(domain.base)]
    state = state.with_items(replace(r, columns=tuple(map(retyped, r.columns))) for r in relations)
    return state.with_items(replace(d, base=changed(d.base)) for d in domains)


def check_domains(table: str, columns: Sequence[Column], before: Sequence[Column] = ()) -> None:
    """PgError 54000 if the domains of the columns have too many or too long constraints, and had less `before`."""
    checks, characters = _size_of_domains(columns)
    if checks <= DOMAIN_CHECKS_MAX and characters <= DOMAIN_CHARS_MAX:
        return
    checks_before, characters_before = _size_of_domains(before)
    if checks > checks_before or characters > characters_before:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f'the domains of the columns of table "{table}" have too many constraints',
            detail=f"They may have {DOMAIN_CHECKS_MAX} check constraints and {DOMAIN_CHARS_MAX} characters of"
            " constraints and defaults, which count for each column.",
            hint="Combine conditions with AND, or use the domain for fewer columns.",
        )


def check_types(before: CatalogState, after: CatalogState) -> None:
    """PgError 54000 if the types of the columns of a new or changed relation have too many labels.

    A relation that had too many before is accepted if it has no more.
    """
    for id in after.changed_items(before):
        relation, known = after.items[id], before.items.get(id)
        if not isinstance(relation, Relation) or (size := _size_of_types(relation)) <= TYPE_CHARS_MAX:
            continue
        if not isinstance(known, Relation) or size > _size_of_types(known):
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'the types of the columns of "{relation.name}" have too many labels',
                detail=f"Their labels and names may have {TYPE_CHARS_MAX} characters, which count for each column.",
                hint="Use enumerated types with many labels for fewer columns.",
            )


def _size_of_types(relation: Relation) -> int:
    return sum(len(column.type) for column in relation.columns)


def _size_of_domains(columns: Sequence[Column]) -> tuple[int, int]:
    """The numbers of the CHECK constraints, and of their and the defaults' characters, of the domains of columns."""
    numbers = Counter(column.domain.id for column in columns if column.domain is not None)
    domains = {column.domain.id: column.domain for column in columns if column.domain is not None}
    checks = characters = 0
    for id, number in numbers.items():
        domain = domains[id]
        texts = (domain.default or "", *(check.name + check.expression for check in domain.checks))
        checks += number * len(domain.checks)
        characters += number * sum(map(len, texts))
    return checks, characters
