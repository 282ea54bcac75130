"""CREATE VIEW and CREATE MATERIALIZED VIEW, and SHOW CREATE of both."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from catalog.drops import InUse, without_item
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.clusters import QUICKSTART
from catalog.objects.columns import Column
from catalog.objects.namespaces import is_temporary
from catalog.objects.relations import Collection, DerivedRelation
from catalog.objects.views import MaterializedView, View
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.execution.ddl.columns import check_columns, check_types
from server.execution.ddl.named_objects import check_kind, in_use, refuse_system_table, unless_exists
from server.execution.ddl.retention import retain_clause, retained_ms
from server.execution.ddl.view_columns import with_views
from server.execution.names import qualified_name, schema_of, temporary_schema_of
from server.execution.planning import system_table_in
from server.session_state.context import Context
from server.sql.bind import Binder
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Ident, Query
from server.sql.grammar.statements.views import CreateMaterializedView, CreateView
from server.sql.plan import QueryPlan, plan_query, reject_deep_nesting
from server.sql.stored_columns import unchanged
from server.sql.stored_query import definition, plan_stored
from server.sql.writes.check_options import rules_through
from server.sql.writes.target import NotUpdatable, write_target
from server.sql.writes.updatable_views import NO_COLUMNS, level_of


def create(context: Context, statement: CreateView | CreateMaterializedView) -> CatalogState:
    """Executes CREATE [OR REPLACE] [MATERIALIZED] VIEW."""
    materialized = isinstance(statement, CreateMaterializedView)
    check_option = (statement.check_option or "") if isinstance(statement, CreateView) else ""
    columns, text, uses, types = plan_view(context, statement.query, statement.columns, maintained=materialized)
    if _is_temporary(context, statement, uses):
        state, schema, name = temporary_schema_of(context, statement.name)
    else:
        state = context.state
        schema, name = schema_of(context, statement.name)
    replaced = state.item_named(schema.id, name) if statement.or_replace else None
    if materialized:
        check_maintainable(context, plan_stored(text, state))
    if replaced is not None:
        privileges.require_owner(state, context.role, replaced)
        refuse_system_table(replaced)
        check_kind(replaced, ObjectKind.MATERIALIZED_VIEW if materialized else ObjectKind.VIEW)
        if isinstance(replaced, View):
            count = replaced.replacements + 1
            view = replace(
                replaced,
                columns=columns,
                query=text,
                uses=uses,
                types=types,
                replacements=count,
                check_option=check_option,
            )
            _validate_check_option(context, view)
            return _replaced_view(context, state, replaced, view)
        try:
            state = without_item(state, replaced.id)
        except InUse as error:
            raise in_use(error) from None
    id, state = state.new_id()
    created: DerivedRelation
    if isinstance(statement, CreateMaterializedView):
        if not statement.with_data:
            context.notice(Notice(f'materialized view "{name}" has its rows at once, in spite of WITH NO DATA'))
        retain_ms = retained_ms(context, statement.retain)
        created = MaterializedView(id, schema.id, name, columns, text, uses, types=types, retain_ms=retain_ms)
    else:
        created = View(id, schema.id, name, columns, text, uses, types=types, check_option=check_option)
        _validate_check_option(context, created)
    privileges.require_types(state, context.role, created)
    try:
        state = state.with_item(created)
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)
    return _with_rights_of(replaced, context.state, state, id) if replaced is not None else state


def _validate_check_option(context: Context, view: View) -> None:
    """PgError 0A000 if a view has a WITH CHECK OPTION that cannot be enforced."""
    if not view.check_option:
        return
    planning = context.plan_context()
    level = level_of(view, planning.state)
    reason = level if isinstance(level, str) else None if level.is_updatable else NO_COLUMNS
    if reason is not None:
        message = "WITH CHECK OPTION is supported only on automatically updatable views"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=reason)
    with suppress(NotUpdatable):  # writes to the view are refused, because one below is not updatable
        reject_deep_nesting(lambda: rules_through(write_target(Binder(planning), view, "insert into", None), planning))


def _replaced_view(context: Context, state: CatalogState, old: View, new: View) -> CatalogState:
    """The state in which a view has another query. What belongs to it and the views over it remain.

    PgError 42P16, 42P17; 2BP01 if rows of the view are maintained.
    """
    _check_replaced_columns(old.columns, new.columns)
    privileges.require_types(state, context.role, new)
    users = state.dependents(old.id)
    if not new.uses.isdisjoint((old.id, *(user.id for user in users))):
        message = f'infinite recursion detected in rules for relation "{old.name}"'
        raise PgError(SqlState.INVALID_OBJECT_DEFINITION, message)
    if maintained := [user for user in users if not isinstance(user, View)]:
        raise PgError(
            SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
            f"cannot replace view {old.name} because other objects maintain its rows",
            detail="\n".join(f"{user.kind} {user.name} depends on view {old.name}" for user in maintained),
            hint="Drop these objects, and create them again afterwards.",
        )
    if len(new.columns) > len(old.columns):  # SELECT * of a view over it keeps its columns
        state = with_views(state, old, unchanged)
    return state.with_item(new)


def _check_replaced_columns(old: tuple[Column, ...], new: tuple[Column, ...]) -> None:
    """PgError 42P16 unless the new columns of a view begin with the old ones, as in PostgreSQL."""
    state = SqlState.INVALID_TABLE_DEFINITION
    if len(new) < len(old):
        raise PgError(state, "cannot drop columns from view")
    for before, after in zip(old, new, strict=False):
        if before.name != after.name:
            hint = "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."
            raise PgError(state, f'cannot change name of view column "{before.name}" to "{after.name}"', hint=hint)
        if before.type != after.type:
            types = f"from {parse_type(before.type).declaration} to {parse_type(after.type).declaration}"
            raise PgError(state, f'cannot change data type of view column "{before.name}" {types}')


def _is_temporary(context: Context, statement: CreateView | CreateMaterializedView, uses: frozenset[ObjectId]) -> bool:
    """Whether a view is temporary, with a notice if the statement does not say so. PgError 0A000."""
    state = context.state
    if isinstance(statement, CreateView) and statement.temporary:
        return True
    if not any(is_temporary(state.schemas[state.items[id].schema_id]) for id in uses):
        return False
    if isinstance(statement, CreateMaterializedView):
        message = "materialized views must not use temporary tables or views"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    context.notice(Notice(f'view "{statement.name.parts[-1]}" will be a temporary view'))
    return True


def _with_rights_of(replaced: Item, before: CatalogState, state: CatalogState, id: ObjectId) -> CatalogState:
    """The object that replaces a view keeps the view's owner and privileges."""
    state = state.with_owner(id, before.owner(replaced.id))
    if replaced.id not in before.privileges and state.default_acl(id) is None:
        return state
    return state.with_acls({id: before.acl(replaced.id)})


def plan_view(
    context: Context, query: Query, names: tuple[Ident, ...], *, maintained: bool
) -> tuple[tuple[Column, ...], str, frozenset[ObjectId], frozenset[ObjectId]]:
    """Returns a view's columns, its stored text, and the ids of the objects and of the types that it names."""
    plan = plan_query(query, context.plan_context(), None, maintained=maintained)
    if plan.row_locks is not None:
        hint = "Write FOR UPDATE in the query that reads the view's tables."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "a view that locks rows is not supported", hint=hint)
    if maintained:
        privileges.require_query(context.state, context.role, plan)
        privileges.require(context.state, context.role, QUICKSTART.id, Privilege.USAGE)
    else:
        privileges.require_names(context.state, context.role, plan.uses)
    if maintained and (system := system_table_in(plan, context.state)) is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'materialized view over system table "{system.name}" is not supported',
            hint="Create a view: system tables are read at once, without Spark.",
        )
    if len(names) > len(plan.columns):
        raise PgError(SqlState.SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns")
    final = [*names, *(Ident(field.name, 0) for field in plan.columns[len(names) :])]
    check_columns(final, "view")
    check_types(final, (field.type for field in plan.columns))
    columns = tuple(
        Column(ident.name, "text" if field.type.name == "unknown" else str(field.type), field.nullable)
        for ident, field in zip(final, plan.columns, strict=True)
    )
    return columns, plan.stored_text, plan.uses | plan.sequences, plan.types


def check_maintainable(context: Context, stored: QueryPlan) -> None:
    """PgError 0A000 if the query cannot be maintained. The query may read objects created by this transaction."""
    items, rows = context.state.items, context.coordinator.reads.log_row_count
    sizes = {id: rows(id) for id in stored.inputs if isinstance(items[id], Collection)}
    maintenance_strategy(stored, sizes).check()


def show_create(context: Context, view: DerivedRelation) -> str:
    """The CREATE statement of a view or materialized view."""
    columns = ", ".join(quote_identifier(column.name) for column in view.columns)
    query = definition(view, context.state)
    name = qualified_name(context, view)
    check_option = view.check_option.upper() if isinstance(view, View) else ""
    ending = f" WITH {check_option} CHECK OPTION" if check_option else ""
    return f"CREATE {view.kind.upper()} {name} ({columns}){retain_clause(view)} AS {query}{ending}"
