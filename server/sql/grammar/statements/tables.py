"""CREATE TABLE, CREATE TABLE AS and SELECT INTO."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects.columns import DomainUse
from catalog.objects.tables import OnCommit
from protocol.pgwire.types import PgType
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Parsed, Query
from server.sql.grammar.statements.sequences import Identity


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE. `identity`: it has a sequence of its own. `generated`: its value is computed.

    `domain`: set when the type is resolved, if it is a domain; `type` is then its base type.
    """

    name: Ident
    type: PgType
    not_null: bool
    default: Expr | None
    identity: Identity | None = None
    generated: Expr | None = None
    domain: DomainUse | None = None


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE relation [INCLUDING ...]. `defaults`, `keys` and the others: whether they are copied."""

    relation: Name
    defaults: bool
    keys: bool
    comments: bool
    identity: bool
    constraints: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint, of the column or of the table. `position`: of its first word."""

    columns: tuple[Ident, ...]
    primary: bool
    name: Ident | None
    position: int
    not_enforced: bool = False
    nulls_not_distinct: bool = False
    deferrable: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable(Definition):
    """`retain`, here and in other statements, is the text of the interval in RETAIN HISTORY FOR.

    `rules`: CHECK and REFERENCES constraints.
    `on_commit`: what a temporary table does then; None: nothing.
    """

    tag = "CREATE TABLE"

    name: Name
    columns: tuple[ColumnDefinition | Like, ...]
    keys: tuple[Key, ...]
    if_not_exists: bool
    retain: str | None = None
    rules: tuple[CheckConstraint | Reference, ...] = ()
    temporary: bool = False
    on_commit: OnCommit | None = None


@dataclass(frozen=True, slots=True)
class RenameConstraint(Definition):
    """ALTER TABLE ... RENAME CONSTRAINT."""

    tag = "ALTER TABLE"

    table: Name
    constraint: Ident
    new_name: Ident
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateTableAs(Parsed):
    """CREATE TABLE ... AS query, or SELECT ... INTO. `columns` name the query's first columns.

    `verb`: the statement's name in messages. `with_data`: the table gets the query's rows.
    """

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    if_not_exists: bool
    verb: str
    with_data: bool = True
    retain: str | None = None
    temporary: bool = False
    on_commit: OnCommit | None = None
