"""CREATE DOMAIN and ALTER DOMAIN."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.pgwire.types import PgType
from server.sql.grammar.statements.checks import CheckConstraint
from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Parsed


@dataclass(frozen=True, slots=True)
class CreateDomain(Definition):
    tag = "CREATE DOMAIN"

    name: Name
    base: PgType
    not_null: bool
    default: Expr | None
    checks: tuple[CheckConstraint, ...]


@dataclass(frozen=True, slots=True)
class SetDomainDefault(Definition):
    """ALTER DOMAIN ... SET DEFAULT; `default` None: DROP DEFAULT."""

    tag = "ALTER DOMAIN"

    name: Name
    default: Expr | None


@dataclass(frozen=True, slots=True)
class DropDomainConstraint(Definition):
    """ALTER DOMAIN ... DROP CONSTRAINT; `constraint` None: DROP NOT NULL. `missing_ok`: IF EXISTS."""

    tag = "ALTER DOMAIN"

    name: Name
    constraint: Ident | None
    missing_ok: bool = False


@dataclass(frozen=True, slots=True)
class RenameDomainConstraint(Definition):
    tag = "ALTER DOMAIN"

    name: Name
    constraint: Ident
    new_name: Ident


@dataclass(frozen=True, slots=True)
class ConstrainDomain(Parsed):
    """ALTER DOMAIN: ADD CHECK, VALIDATE CONSTRAINT, or with neither SET NOT NULL. The values of columns are checked."""

    name: Name
    check: CheckConstraint | None = None
    validated: Ident | None = None
