"""CREATE TYPE ... AS ENUM, ALTER TYPE and SHOW CREATE TYPE (PostgreSQL's typecmds.c and pg_enum.c)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from catalog.enum_positions import first_positions, position_between
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation
from catalog.objects.tables import Table
from catalog.objects.types import Domain, EnumType
from catalog.objects.views import MaterializedView
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import PgType
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_item, name_taken
from server.execution.names import qualified_name, schema_of
from server.execution.user_types import with_enum, with_type
from server.session_state.context import Context
from server.sql.expressions import Aggregate, Call, Cast, walk
from server.sql.grammar.lexer import Kind, tokenize
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.types import AddEnumValue, CreateEnum, RenameEnumValue, SetTypeSchema
from server.sql.stored_query import plan_index, plan_stored
from server.sql.type_names import UserType

LABEL_BYTES_MAX = 63
LABELS_MAX = 10_000


def create(context: Context, statement: CreateEnum) -> CatalogState:
    """Executes CREATE TYPE ... AS ENUM."""
    schema, name = schema_of(context, statement.name)
    _check_count(len(statement.labels))
    seen = set()
    for label in statement.labels:
        _check_label(label)
        if label in seen:
            raise PgError(SqlState.DUPLICATE_OBJECT, f'enum label "{label}" used more than once')
        seen.add(label)
    id, state = context.state.new_id()
    array_id, state = state.new_id()
    item = EnumType(id, schema.id, name, statement.labels, first_positions(len(statement.labels)), array_id)
    try:
        return state.with_item(item)
    except NameTaken as error:
        raise name_taken(error) from None


def add_value(context: Context, statement: AddEnumValue) -> CatalogState:
    """Executes ALTER TYPE ... ADD VALUE."""
    item = _altered(context, statement.name)
    _check_label(statement.label)
    labels, positions = list(item.labels), list(item.positions)
    if statement.label in labels:
        message = f'enum label "{statement.label}" already exists'
        if not statement.if_not_exists:
            raise PgError(SqlState.DUPLICATE_OBJECT, message)
        context.notice(Notice(f"{message}, skipping", sqlstate=SqlState.DUPLICATE_OBJECT))
        return context.state
    _check_count(len(labels) + 1)
    at = len(labels)
    if statement.neighbour is not None:
        at = _number(item, statement.neighbour) + (not statement.is_before)
    low, high = positions[at - 1] if at else None, positions[at] if at < len(positions) else None
    labels.insert(at, statement.label)
    positions.insert(at, position_between(low, high))
    return with_enum(context.state, replace(item, labels=tuple(labels), positions=tuple(positions)))


def rename_value(context: Context, statement: RenameEnumValue) -> CatalogState:
    """Executes ALTER TYPE ... RENAME VALUE. PgError 0A000 if a stored expression would mean something else."""
    item = _altered(context, statement.name)
    _check_label(statement.new_label)
    labels = list(item.labels)
    number = _number(item, statement.label)
    if statement.new_label in labels:
        raise PgError(SqlState.DUPLICATE_OBJECT, f'enum label "{statement.new_label}" already exists')
    for what, reason in _users_of_labels(context.state, item, statement.label):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'cannot rename value "{statement.label}" of type {item.name} because {what} {reason}',
            hint="Drop it, and create it again afterwards.",
        )
    labels[number] = statement.new_label
    return with_enum(context.state, replace(item, labels=tuple(labels)))


def set_schema(context: Context, statement: SetTypeSchema) -> CatalogState:
    """Executes ALTER TYPE or ALTER DOMAIN ... SET SCHEMA."""
    item = altered_item(context, statement.kind, statement.name, if_exists=False)
    assert isinstance(item, UserType)
    privileges.require_owner(context.state, context.role, item)
    schema, _ = schema_of(context, Name((statement.schema.name, item.name), statement.schema.position))
    return moved(context.state, replace(item, schema_id=schema.id))


def moved(state: CatalogState, item: UserType) -> CatalogState:
    """The state after a type got another name or schema. PgError 42710."""
    try:
        return with_type(state, item)
    except NameTaken as error:
        raise name_taken(error) from None


def show_create(context: Context, item: EnumType) -> str:
    """The CREATE TYPE statement of a type."""
    labels = ", ".join(f"'{label.replace(chr(39), chr(39) * 2)}'" for label in item.labels)
    return f"CREATE TYPE {qualified_name(context, item)} AS ENUM ({labels})"


def _altered(context: Context, name: Name) -> EnumType:
    """The type that a statement changes. PgError 42704, 42809, 42501."""
    found = altered_item(context, ObjectKind.TYPE, name, if_exists=False)
    assert found is not None
    privileges.require_owner(context.state, context.role, found)
    if not isinstance(found, EnumType):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f"{found.name} is not an enum")
    return found


def _check_label(label: str) -> None:
    if len(label.encode()) > LABEL_BYTES_MAX:
        detail = f"Labels must be {LABEL_BYTES_MAX} bytes or less."
        raise PgError(SqlState.INVALID_NAME, f'invalid enum label "{label[:100]}"', detail=detail)


def _check_count(count: int) -> None:
    if count > LABELS_MAX:
        message = f"an enum can have at most {LABELS_MAX} labels"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)


def _number(item: EnumType, label: str) -> int:
    if label not in item.labels:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'"{label}" is not an existing enum label')
    return item.labels.index(label)


# -- users of labels ------------------------------------------------------------------------------------------------


def _users_of_labels(state: CatalogState, item: EnumType, label: str) -> Iterator[tuple[str, str]]:
    """The objects whose stored text may name a label, or whose stored rows were computed from labels, and why."""
    for user in state.dependents(item.id):
        if any(_has_string(text, label) for text in _texts(user)):
            yield f"{user.kind} {user.name}", "names it"
        elif _stores_labels(state, user, item.id):
            yield f"{user.kind} {user.name}", "has rows that were computed from it"


def _texts(item: Item) -> Iterator[str]:
    match item:
        case DerivedRelation():
            yield item.query
        case Table():
            yield from (text for column in item.columns if (text := column.default or column.generated))
            yield from (check.expression for check in item.checks)
        case Index():
            yield from (*item.keys, item.condition)
        case Domain():
            yield from (item.default or "", *(check.expression for check in item.checks))


def _has_string(text: str, label: str) -> bool:
    return any(token.kind is Kind.STRING and token.value == label for token in tokenize(text))


def _stores_labels(state: CatalogState, user: Item, type: ObjectId) -> bool:
    """Whether rows that are kept contain the text of values of the type."""
    if isinstance(user, MaterializedView):
        plan = plan_stored(user.query, state)
    elif isinstance(user, Index):
        plan = plan_index(user, state)
    elif isinstance(user, Table):
        return any(column.generated for column in user.columns)
    else:
        return False
    return any(_reads_label(node, type) for node in walk(plan.relation))


def _reads_label(node: Any, type: ObjectId) -> bool:
    """Whether a node of an expression computes something from the label of a value."""
    match node:
        case Cast(operand=operand, type=target):
            return _is_of(operand.type, type) and not _is_of(target, type)
        case Call(function=function, arguments=arguments) | Aggregate(function=function, arguments=arguments):
            return function.typed and any(_is_of(argument.type, type) for argument in arguments)
    return False


def _is_of(type: PgType, id: ObjectId) -> bool:
    scalar = type.element or type
    return scalar.enum is not None and scalar.enum.id == id
