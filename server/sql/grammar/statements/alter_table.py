"""ALTER TABLE of columns and constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocol.pgwire.types import PgType
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Parsed
from server.sql.grammar.statements.sequences import Identity, SequenceOption
from server.sql.grammar.statements.tables import ColumnDefinition, Key


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`keys`, `rules`: the column's constraints: PRIMARY KEY and UNIQUE, and CHECK and REFERENCES."""

    column: ColumnDefinition
    keys: tuple[Key, ...]
    rules: tuple[CheckConstraint | Reference, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropColumn:
    column: Ident
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class SetDefault:
    """`default` None: DROP DEFAULT."""

    column: Ident
    default: Expr | None


@dataclass(frozen=True, slots=True)
class SetNotNull:
    """`not_null` False: DROP NOT NULL."""

    column: Ident
    not_null: bool


@dataclass(frozen=True, slots=True)
class SetType:
    """`using`: the new value, None for an assignment cast of the old one."""

    column: Ident
    type: PgType
    using: Expr | None


@dataclass(frozen=True, slots=True)
class AddIdentity:
    """ALTER COLUMN ... ADD GENERATED ... AS IDENTITY."""

    column: Ident
    identity: Identity


@dataclass(frozen=True, slots=True)
class SetIdentity:
    """`always` None: ALWAYS or BY DEFAULT is not changed. `options`: of the sequence."""

    column: Ident
    always: bool | None
    options: tuple[SequenceOption, ...]


@dataclass(frozen=True, slots=True)
class DropIdentity:
    column: Ident
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropExpression:
    """DROP EXPRESSION of a generated column."""

    column: Ident
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AddKey:
    """ADD [CONSTRAINT name] PRIMARY KEY or UNIQUE."""

    key: Key


@dataclass(frozen=True, slots=True)
class AddCheck:
    """ADD [CONSTRAINT name] CHECK."""

    check: CheckConstraint


@dataclass(frozen=True, slots=True)
class AddReference:
    """ADD [CONSTRAINT name] FOREIGN KEY."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class ValidateCheck:
    """VALIDATE CONSTRAINT."""

    name: Ident


@dataclass(frozen=True, slots=True)
class DropConstraint:
    constraint: Ident
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class NoEffect:
    """An action that is only checked: how rows are stored, and triggers and rules, which tables do not have.

    `kind` of what `name` names: column, index, trigger or rule.
    """

    kind: str = ""
    name: Ident | None = None


TableAction = (
    AddColumn
    | DropColumn
    | SetDefault
    | SetNotNull
    | SetType
    | AddIdentity
    | SetIdentity
    | DropIdentity
    | DropExpression
    | AddKey
    | AddCheck
    | AddReference
    | ValidateCheck
    | DropConstraint
    | NoEffect
)


@dataclass(frozen=True, slots=True)
class AlterTable(Parsed):
    """ALTER TABLE with actions on columns and constraints."""

    kind: ClassVar[ObjectKind] = ObjectKind.TABLE

    name: Name
    if_exists: bool
    actions: tuple[TableAction, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn(Definition):
    """ALTER TABLE, VIEW or MATERIALIZED VIEW ... RENAME COLUMN column TO new_name."""

    kind: ObjectKind
    name: Name
    column: Ident
    new_name: Ident
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"
