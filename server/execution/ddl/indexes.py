"""CREATE INDEX, SHOW CREATE INDEX and SHOW INDEXES."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from catalog.objects.clusters import QUICKSTART
from catalog.objects.indexes import Index
from catalog.objects.relations import Relation
from catalog.objects.views import View
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import TEXT
from server.authorization import privileges
from server.execution.ddl.index_options import SEARCHING, index_options
from server.execution.ddl.named_objects import unless_exists
from server.execution.ddl.retention import retain_clause, retained_ms
from server.execution.ddl.views import check_maintainable
from server.execution.names import find_item, qualified_name, with_item_names
from server.execution.planning import plan_index_condition, plan_index_keys, system_table_in
from server.session_state.context import Context
from server.sql.computed_keys import computed_key
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.views import CreateIndex, IndexKey
from server.sql.index_keys import (
    called_function,
    condition_text,
    ending_text,
    key_column,
    key_texts,
    unqualified,
    unqualified_text,
)
from server.sql.plan import Field
from server.sql.stored_query import plan_stored, relation_query

ROW_BYTES_MAX = 8_160
"""The size of the keys and the condition of an index: as in PostgreSQL, where it is that of a row of pg_index."""
TABLE_CHARS_MAX = 32_768
"""Of the keys and conditions of all unique indexes of a table. The event loop binds them for the first write after a
start of the server, in about 15 µs for each character."""
LONG_CHARS = 256
LONG_CHARS_MAX = 1_048_576  # of all unique indexes with more than LONG_CHARS, whose expressions are in memory


def create(context: Context, statement: CreateIndex) -> CatalogState:
    """Executes CREATE INDEX."""
    relation = find_item(context, statement.on)
    if not isinstance(relation, Relation) or not relation.is_indexable or not relation.columns:
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot create index on {relation.kind} "{relation.name}"')
    state = context.state
    privileges.require_owner(state, context.role, relation)
    privileges.require(state, context.role, relation.schema_id, Privilege.CREATE)
    privileges.require(state, context.role, QUICKSTART.id, Privilege.USAGE)
    qualifier = state.schemas[relation.schema_id].name, relation.name
    statement = _unqualified(statement, *qualifier)
    keys = plan_index_keys(statement, relation, context.plan_context())
    if isinstance(relation, View):
        _check_indexed_view(context, relation)
    condition = unqualified_text(plan_index_condition(statement, relation, context.plan_context()), *qualifier)
    options = index_options(statement, relation, keys)
    if (size := len(" ".join((*keys, *options.included, condition)).encode())) > ROW_BYTES_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f"row is too big: size {size}, maximum size {ROW_BYTES_MAX}",
            hint="Write a shorter expression or condition, or index a generated column.",
        )
    if statement.unique:
        _check_lengths(state, relation, size)
        computed_key(relation.columns, keys, condition)  # the event loop will find it in the cache
    if options.method in SEARCHING:
        context.notice(
            Notice(
                f"index of access method {options.method} finds rows by equal keys only",
                detail="Other searches, such as for parts of a value or for ranges, read all rows.",
            )
        )
    name = statement.name.name if statement.name is not None else _index_name(state, relation, keys)
    id, state = state.new_id()
    retain_ms = retained_ms(context, statement.retain)
    try:
        index = Index(
            id,
            relation.schema_id,
            name,
            relation.id,
            keys,
            statement.unique,
            not statement.nulls_not_distinct,
            options.method,
            options.included,
            options.options,
            options.classes,
            condition,
            retain_ms=retain_ms,
        )
        return state.with_item(index)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)


def _unqualified(statement: CreateIndex, schema: str, relation: str) -> CreateIndex:
    """The statement without the relation's name before columns in expressions. The condition keeps its text.

    A key that is a column has no qualifier in PostgreSQL.
    """

    def key_of(key: IndexKey) -> IndexKey:
        if isinstance(key.expression.tree, exp.Column):
            return key
        expression = unqualified(key.expression, schema, relation)
        text = unqualified_text(expression.text, schema, relation)
        return replace(key, expression=replace(expression, text=text))

    where = statement.where and unqualified(statement.where, schema, relation)
    return replace(statement, keys=tuple(map(key_of, statement.keys)), where=where)


def _check_lengths(state: CatalogState, relation: Relation, size: int) -> None:
    """54000 if the keys and conditions of the unique indexes would be too long, with those of a further one."""
    own = sum(_chars(index) for index in state.indexes_on(relation.id) if index.is_unique)
    if size + own > TABLE_CHARS_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f'too long keys and conditions of unique indexes on table "{relation.name}"',
            detail=f"Those of a table can have at most {TABLE_CHARS_MAX} characters together.",
            hint="Write shorter conditions, or index generated columns.",
        )
    if size <= LONG_CHARS:
        return
    chars = [_chars(index) for index in state.items_of(Index) if index.is_unique]
    if size + sum(length for length in chars if length > LONG_CHARS) > LONG_CHARS_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many unique indexes with long keys and conditions",
            detail=f"Those of more than {LONG_CHARS} characters can have at most {LONG_CHARS_MAX} together.",
            hint="Write shorter conditions, or drop some of the indexes.",
        )


def _chars(index: Index) -> int:
    return len(index.condition) + sum(map(len, index.keys))


def _check_indexed_view(context: Context, view: View) -> None:
    """Checks a view for CREATE INDEX, which maintains its rows like those of a materialized view.

    PgError if they cannot be maintained, or if the role may not read them.
    """
    privileges.require_select(context.state, context.role, (view.id,))
    plan = plan_stored(relation_query(view).text, context.state)
    if (system := system_table_in(plan, context.state)) is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'index on view "{view.name}" over system table "{system.name}" is not supported',
            hint="Query the view: system tables are read at once, without Spark.",
        )
    check_maintainable(context, plan)


def _index_name(state: CatalogState, relation: Relation, keys: tuple[str, ...]) -> str:
    columns = [key_column(key, relation.columns) for key in keys]
    words = [
        (called_function(key) or "expr") if column is None else relation.columns[column].name
        for key, column in zip(keys, columns, strict=True)
    ]
    stem = "_".join([relation.name, *words, "idx"]) if keys else f"{relation.name}_primary_idx"
    number, name = 0, stem
    while state.item_named(relation.schema_id, name) is not None:
        number += 1
        name = f"{stem}{number}"
    return name


def show_create(context: Context, index: Index) -> str:
    """The CREATE INDEX statement of an index."""
    on = qualified_name(context, context.state.relation(index.on))
    what = "UNIQUE INDEX" if index.is_unique else "INDEX"
    using = "" if index.method == "btree" else f" USING {index.method}"
    where = f" WHERE {condition_text(with_item_names(context, index.condition))}" if index.condition else ""
    keys = ", ".join(key_texts(index, index.keys))
    return (
        f"CREATE {what} {quote_identifier(index.name)} ON {on}{using} ({keys}){ending_text(index)}"
        f"{retain_clause(index)}{where}"
    )


SHOW_FIELDS = (Field("name", TEXT, False), Field("on", TEXT, False), Field("key", TEXT, False))


def show_row(context: Context, index: Index) -> tuple[object, ...]:
    """A row of SHOW INDEXES."""
    return index.name, context.state.items[index.on].name, ", ".join(index.keys)
