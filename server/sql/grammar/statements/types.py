"""CREATE TYPE ... AS ENUM and ALTER TYPE."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Definition, Ident, Name


@dataclass(frozen=True, slots=True)
class CreateEnum(Definition):
    tag = "CREATE TYPE"

    name: Name
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddEnumValue(Definition):
    """ALTER TYPE ... ADD VALUE. `neighbour`: the label that the new one precedes or follows; None: it is the last."""

    tag = "ALTER TYPE"

    name: Name
    label: str
    if_not_exists: bool
    neighbour: str | None
    is_before: bool


@dataclass(frozen=True, slots=True)
class RenameEnumValue(Definition):
    tag = "ALTER TYPE"

    name: Name
    label: str
    new_label: str


@dataclass(frozen=True, slots=True)
class SetTypeSchema(Definition):
    """ALTER TYPE or ALTER DOMAIN ... SET SCHEMA."""

    kind: ObjectKind
    name: Name
    schema: Ident

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"
