"""CREATE TABLE and SHOW CREATE TABLE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import catalog.keys
from catalog.ids import ObjectId
from catalog.objects.columns import Check, Column
from catalog.objects.relations import DerivedRelation
from catalog.objects.sequences import Sequence as SequenceItem
from catalog.objects.tables import Table
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.execution.ddl.checks import with_rules
from server.execution.ddl.columns import check_columns
from server.execution.ddl.keys import with_keys
from server.execution.ddl.named_objects import name_taken, unless_exists
from server.execution.ddl.retention import retain_clause, retained_ms
from server.execution.ddl.sequences import create_owned, options_text
from server.execution.names import find_relation, qualified_name, schema_of, temporary_schema_of, with_item_names
from server.execution.planning import plan_default
from server.execution.user_types import check_domains, known_column
from server.session_state.context import Context
from server.sql.foreign_keys import foreign_key_text
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.sequences import Identity
from server.sql.grammar.statements.tables import ColumnDefinition, CreateTable, Key, Like


def create(context: Context, statement: CreateTable) -> CatalogState:
    """Executes CREATE TABLE."""
    state = context.state
    named = [known_column(context, part) if isinstance(part, ColumnDefinition) else part for part in statement.columns]
    statement = replace(statement, columns=tuple(named))
    if statement.temporary:
        state, schema, name = temporary_schema_of(context, statement.name)
    else:
        schema, name = schema_of(context, statement.name)
    if statement.if_not_exists and (taken := context.state.item_named(schema.id, name)) is not None:
        return unless_exists(context, NameTaken(taken.kind, name), True)
    parts = [_columns(context, part) for part in statement.columns]
    check_columns([Ident(column.name, position) for columns, position in parts for column in columns], "table")
    columns = tuple(column for part, _ in parts for column in part)
    check_domains(name, columns)
    id, state = state.new_id()
    columns, keys = with_keys(state, schema.id, name, columns, statement.keys)
    for key in (key for part in statement.columns for key in _copied_keys(context, part)):
        columns, keys = with_keys(state, schema.id, name, columns, [key], keys)
    retain_ms = retained_ms(context, statement.retain)
    checks = _copied_checks(context, statement)
    table = Table(id, schema.id, name, columns, keys, retain_ms=retain_ms, on_commit=statement.on_commit, checks=checks)
    privileges.require_types(state, context.role, table)
    definitions = [part for part in statement.columns if isinstance(part, ColumnDefinition)]
    table = with_rules(context, table, definitions, statement.rules)
    try:
        state = state.with_item(table)
        identities = [found for part, (made, _) in zip(statement.columns, parts, strict=True)
                      for found in _identities(context, part, made)]  # fmt: skip
        state = _with_sequences(context, state, table, identities)
    except NameTaken as error:
        raise name_taken(error) from None
    return _with_copied_comments(context, state, id, statement, [len(part) for part, _ in parts])


def _identities(context: Context, part: ColumnDefinition | Like, made: Sequence[Column]) -> list[Identity | None]:
    """For each column that a part of CREATE TABLE defines, how its sequence is created; None: it has none."""
    if isinstance(part, ColumnDefinition):
        return [part.identity]
    if not part.identity:
        return [None] * len(made)
    relation = find_relation(context, part.relation)
    return [Identity(column.identity == "a") if column.identity else None for column in relation.columns]


def _with_sequences(
    context: Context, state: CatalogState, table: Table, identities: Sequence[Identity | None]
) -> CatalogState:
    """The state with the sequences of the table's columns."""
    columns = list(table.columns)
    for number, identity in enumerate(identities):
        if identity is not None:
            columns[number], state = create_owned(context, state, table, columns[number], identity)
    return state.with_item(replace(table, columns=tuple(columns))) if any(identities) else state


def _columns(context: Context, part: ColumnDefinition | Like) -> tuple[tuple[Column, ...], int]:
    """The columns that a part of CREATE TABLE defines, and the position of its name. PgError 42P01, 42501 for LIKE."""
    checkpoint()
    if isinstance(part, ColumnDefinition):
        default, called = plan_default(part, context.plan_context()) if part.default is not None else (None, ())
        column = Column(
            part.name.name, str(part.type), not part.not_null, default, sequences=called, domain=part.domain
        )
        return (column,), part.name.position
    relation = find_relation(context, part.relation)
    if isinstance(relation, SequenceItem):
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'relation "{relation.name}" is invalid in LIKE clause',
            detail="This operation is not supported for sequences.",
            position=part.relation.position,
        )
    privileges.require(context.state, context.role, relation.id, Privilege.SELECT)
    has_constraints = not isinstance(relation, DerivedRelation)
    columns = tuple(
        replace(
            c if part.defaults and not c.identity else c.without_default(),
            nullable=c.nullable or not has_constraints,
            generated=c.generated if part.generated else "",
        )
        for c in relation.columns
    )
    return columns, part.relation.position


def _copied_checks(context: Context, statement: CreateTable) -> tuple[Check, ...]:
    """The CHECK constraints that LIKE ... INCLUDING CONSTRAINTS copies. PgError 42710 if two have the same name."""
    copied: dict[str, Check] = {}
    for part in statement.columns:
        if not (isinstance(part, Like) and part.constraints):
            continue
        relation = find_relation(context, part.relation)
        for check in relation.checks if isinstance(relation, Table) else ():
            if check.name in copied:
                message = f'constraint "{check.name}" for relation "{statement.name.parts[-1]}" already exists'
                raise PgError(SqlState.DUPLICATE_OBJECT, message)
            copied[check.name] = replace(check, is_valid=True, comment=check.comment if part.comments else None)
    return tuple(copied.values())


def _copied_keys(context: Context, part: ColumnDefinition | Like) -> list[Key]:
    if not (isinstance(part, Like) and part.keys and isinstance(table := find_relation(context, part.relation), Table)):
        return []
    position = part.relation.position
    return [
        Key(
            tuple(Ident(name, position) for name in key.columns),
            key.is_primary,
            None,
            position,
            not key.is_enforced,
            not key.nulls_distinct,
            key.deferrable,
            key.deferred,
        )
        for key in table.keys
    ]


def _with_copied_comments(
    context: Context, state: CatalogState, id: ObjectId, statement: CreateTable, widths: Sequence[int]
) -> CatalogState:
    """The state with the comments of the columns that LIKE ... INCLUDING COMMENTS copies."""
    before = 0
    for part, width in zip(statement.columns, widths, strict=True):
        if isinstance(part, Like) and part.comments:
            relation = find_relation(context, part.relation)
            for number in range(1, width + 1):
                if (comment := state.comments.get((relation.id, number))) is not None:
                    state = state.with_comment(id, before + number, comment)
        before += width
    return state


def default_clause(context: Context, column: Column) -> str:
    """The DEFAULT or GENERATED clause of a column, with the names of sequences."""
    state = context.state
    if column.identity:
        (sequence,) = (state.items[id] for id in column.sequences)
        assert isinstance(sequence, SequenceItem)
        how = "ALWAYS" if column.identity == "a" else "BY DEFAULT"
        return f"GENERATED {how} AS IDENTITY ({options_text(sequence)})"
    if column.generated:
        return f"GENERATED ALWAYS AS ({with_item_names(context, column.generated)}) STORED"
    if column.default is None:
        return ""
    return f"DEFAULT {with_item_names(context, column.default)}"


def key_text(key: catalog.keys.Key) -> str:
    """A key as CREATE TABLE has it, without its name."""
    words = "PRIMARY KEY" if key.is_primary else "UNIQUE" if key.nulls_distinct else "UNIQUE NULLS NOT DISTINCT"
    names = ", ".join(map(quote_identifier, key.columns))
    return f"{words} ({names}){key.attributes}"


def show_create(context: Context, table: Table) -> str:
    """The CREATE TABLE statement of a table."""
    columns = [
        f"{quote_identifier(c.name)} {parse_type(c.type).declaration if c.domain is None else c.domain.name}"
        + ("" if c.nullable else " NOT NULL")
        + (f" {text}" if (text := default_clause(context, c)) else "")
        for c in table.columns
    ]
    for check in table.checks:
        text = f"CONSTRAINT {quote_identifier(check.name)} CHECK ({with_item_names(context, check.expression)})"
        columns.append(text if check.is_valid else f"{text} NOT VALID")
    columns += [f"CONSTRAINT {quote_identifier(key.name)} {key_text(key)}" for key in table.keys]
    columns += [
        f"CONSTRAINT {quote_identifier(key.name)} "
        f"{foreign_key_text(key, qualified_name(context, context.state.items[key.referenced]))}"
        for key in table.foreign_keys
    ]
    return f"CREATE TABLE {qualified_name(context, table)} ({', '.join(columns)}){retain_clause(table)}"
