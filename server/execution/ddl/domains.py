"""CREATE DOMAIN, ALTER DOMAIN and SHOW CREATE DOMAIN (PostgreSQL's typecmds.c)."""

from __future__ import annotations

from dataclasses import replace

from catalog.ids import ObjectId
from catalog.objects.columns import Check
from catalog.objects.indexes import Index
from catalog.objects.relations import DerivedRelation
from catalog.objects.types import Domain
from catalog.objects.views import MaterializedView
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.authorization import privileges
from server.execution.ddl.columns import check_number_of_checks
from server.execution.ddl.named_objects import altered_item, name_taken
from server.execution.names import qualified_name, schema_of, with_item_names
from server.execution.planning import plan_default
from server.execution.user_types import with_domain
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.checks import CheckConstraint
from server.sql.grammar.statements.domains import (
    CreateDomain,
    DropDomainConstraint,
    RenameDomainConstraint,
    SetDomainDefault,
)
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Expr, Ident, Name, NamedType
from server.sql.grammar.statements.tables import ColumnDefinition
from server.sql.row_rules import validate_domain
from server.sql.type_names import resolved


def create(context: Context, statement: CreateDomain) -> CatalogState:
    """Executes CREATE DOMAIN."""
    schema, name = schema_of(context, statement.name)
    base = _base(context, statement.base)
    default = _default(context, base, statement.default) if statement.default is not None else None
    id, state = context.state.new_id()
    domain = Domain(id, schema.id, name, str(base), statement.not_null, default)
    for check in statement.checks:
        domain = with_check(context, domain, replace(check, is_valid=True))
    try:
        return state.with_item(domain)
    except NameTaken as error:
        raise name_taken(error) from None


def set_default(context: Context, statement: SetDomainDefault) -> CatalogState:
    """Executes ALTER DOMAIN ... SET DEFAULT or DROP DEFAULT."""
    domain = altered_domain(context, statement.name)
    default = None
    if statement.default is not None:
        default = _default(context, parse_type(domain.base), statement.default)
    return with_domain(context.state, replace(domain, default=default))


def drop_constraint(context: Context, statement: DropDomainConstraint) -> CatalogState:
    """Executes ALTER DOMAIN ... DROP CONSTRAINT or DROP NOT NULL."""
    domain = altered_domain(context, statement.name)
    if statement.constraint is None:
        return with_domain(context.state, replace(domain, not_null=False))
    name = statement.constraint.name
    if not any(check.name == name for check in domain.checks):
        error = _no_constraint(domain, name)
        if not statement.missing_ok:
            raise error
        context.notice(Notice(f"{error.message}, skipping"))
        return context.state
    checks = tuple(check for check in domain.checks if check.name != name)
    return with_domain(context.state, replace(domain, checks=checks))


def rename_constraint(context: Context, statement: RenameDomainConstraint) -> CatalogState:
    """Executes ALTER DOMAIN ... RENAME CONSTRAINT."""
    domain = altered_domain(context, statement.name)
    old = named_check(domain, statement.constraint)
    _refuse_taken(domain, statement.new_name.name)
    checks = tuple(replace(c, name=statement.new_name.name) if c is old else c for c in domain.checks)
    return with_domain(context.state, replace(domain, checks=checks))


def with_check(context: Context, domain: Domain, check: CheckConstraint) -> Domain:
    """The domain with another CHECK constraint. PgError 42710 if its name is taken, 54000."""
    check_number_of_checks(domain.checks, "domains")
    text = validate_domain(context.plan_context(), parse_type(domain.base), check.expression)
    if check.name is not None:
        name = check.name.name
        _refuse_taken(domain, name)
    else:
        name = _free_name(domain.name, {known.name for known in domain.checks})
    return replace(domain, checks=(*domain.checks, Check(name, text, check.is_valid)))


def altered_domain(context: Context, name: Name) -> Domain:
    """The domain that a statement changes. PgError 42704, 42809, 42501."""
    found = altered_item(context, ObjectKind.DOMAIN, name, if_exists=False)
    assert isinstance(found, Domain)
    privileges.require_owner(context.state, context.role, found)
    return found


def named_check(domain: Domain, name: Ident) -> Check:
    """The CHECK constraint of that name. PgError 42704."""
    for check in domain.checks:
        if check.name == name.name:
            return check
    raise _no_constraint(domain, name.name)


def refuse_maintained(state: CatalogState, domain: ObjectId) -> None:
    """PgError 0A000 if a materialized view or an indexed view casts to a domain: it was computed with the old rules."""
    naming = {v.id for v in state.items_of(DerivedRelation) if domain in v.types}
    over = {user.id for id in naming for user in state.dependents(id)} | naming
    for item in (state.items[id] for id in sorted(over)):
        is_kept = isinstance(item, MaterializedView) or (isinstance(item, Index) and item.on in over)
        if is_kept:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"cannot constrain domain {state.items[domain].name} because {item.kind} {item.name} casts to it",
                hint=f"Drop the {item.kind}, and create it again afterwards.",
            )


def show_create(context: Context, domain: Domain) -> str:
    """The CREATE DOMAIN statement of a domain."""
    parts = [f"CREATE DOMAIN {qualified_name(context, domain)} AS {parse_type(domain.base).declaration}"]
    parts += [f"DEFAULT {with_item_names(context, domain.default)}"] if domain.default is not None else []
    parts += ["NOT NULL"] if domain.not_null else []
    for check in domain.checks:
        parts.append(f"CONSTRAINT {quote_identifier(check.name)} CHECK ({with_item_names(context, check.expression)})")
    return " ".join(parts)


def _base(context: Context, type: PgType) -> PgType:
    """The base type. PgError 42704, 0A000."""
    if not isinstance(type, NamedType):
        return type
    base, item = resolved(context.state, type, context.settings["database"], context.search_path)
    privileges.require_type(context.state, context.role, item)
    if isinstance(item, Domain):
        hint = "Write its base type and its constraints."
        message = f"a domain over domain {item.name} is not supported"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=type.position)
    return base


def _default(context: Context, base: PgType, default: Expr) -> str | None:
    definition = ColumnDefinition(Ident("value", 0), base, False, default)
    text, sequences = plan_default(definition, context.plan_context())
    if sequences:
        message = "a default of a domain that calls a sequence is not supported"
        hint = "Give the columns the default."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=default.position)
    return text


def _refuse_taken(domain: Domain, name: str) -> None:
    if any(check.name == name for check in domain.checks):
        message = f'constraint "{name}" for domain "{domain.name}" already exists'
        raise PgError(SqlState.DUPLICATE_OBJECT, message)


def _free_name(domain: str, taken: set[str]) -> str:
    number, name = 0, f"{domain}_check"
    while name in taken:
        number += 1
        name = f"{domain}_check{number}"
    return name


def _no_constraint(domain: Domain, name: str) -> PgError:
    message = f'constraint "{name}" of domain "{domain.name}" does not exist'
    return PgError(SqlState.UNDEFINED_OBJECT, message)
