"""Secrets, connections and sources."""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.source_definition import ForTables
from protocol.pgwire.types import PgType
from server.sql.grammar.statements.parts import Definition, Ident, Name


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connection or source. `name` is lower case. `value`: text; a list is joined by commas.

    `secret`: the secret whose value is the option's; `value` is then empty.
    """

    name: str
    value: str
    position: int
    secret: Name | None = None


@dataclass(frozen=True, slots=True)
class SecretDefinition(Definition):
    """`text` of a statement with a secret ends before the value, and no repr shows the value."""

    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CreateSecret(SecretDefinition):
    tag = "CREATE SECRET"

    name: Name
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterSecret(SecretDefinition):
    """ALTER SECRET name AS value."""

    tag = "ALTER SECRET"

    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateConnection(Definition):
    """`system`: kafka, confluent schema registry or postgres. `validate` None: without VALIDATE."""

    tag = "CREATE CONNECTION"

    name: Name
    system: str
    options: tuple[Option, ...]
    if_not_exists: bool
    validate: bool | None


@dataclass(frozen=True, slots=True)
class AlterConnection(Definition):
    """ALTER CONNECTION name SET (options) or RESET (names). `validate` as in `CreateConnection`."""

    tag = "ALTER CONNECTION"

    name: Name
    set: tuple[Option, ...]
    reset: tuple[Ident, ...]
    if_exists: bool
    validate: bool | None


@dataclass(frozen=True, slots=True)
class ValidateConnection(Definition):
    tag = "VALIDATE CONNECTION"

    name: Name


@dataclass(frozen=True, slots=True)
class EncodingClause:
    """FORMAT name ...; as `Encoding`, with the registry's connection by name."""

    name: str
    position: int
    registry: Name | None = None
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class IncludeClause:
    """As `Include`."""

    what: str
    name: Ident | None = None
    header: str | None = None
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class FormatClause:
    """As `Format`. `envelope`: as written; `debezium` is interpreted by a setting. `position`: of the first word."""

    position: int
    value: EncodingClause | None = None
    key: EncodingClause | None = None
    include: tuple[IncludeClause, ...] = ()
    envelope: str | None = None
    inline_errors: str | None = None


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of CREATE SOURCE or CREATE TABLE ... FROM SOURCE. `type` None: only the name is given.

    `type` may be a `NamedType`.
    """

    name: Ident
    type: PgType | None
    not_null: bool


@dataclass(frozen=True, slots=True)
class CreateSource(Definition):
    """`system`: kafka, postgres, file or load generator. `options` include the path or the name of the generator."""

    tag = "CREATE SOURCE"

    name: Name
    columns: tuple[SourceColumn, ...]
    system: str
    connection: Name | None
    options: tuple[Option, ...]
    format: FormatClause | None
    tables: ForTables
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateSourceTable(Definition):
    """CREATE TABLE ... FROM SOURCE source (REFERENCE reference)."""

    tag = "CREATE TABLE"

    name: Name
    columns: tuple[SourceColumn, ...]
    source: Name
    reference: Ident
    format: FormatClause | None
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class AddSubsources(Definition):
    """ALTER SOURCE name ADD SUBSOURCE reference [AS name], ..."""

    tag = "ALTER SOURCE"

    name: Name
    tables: ForTables
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropSubsources(Definition):
    """ALTER SOURCE name DROP SUBSOURCE subsource, ..."""

    tag = "ALTER SOURCE"

    name: Name
    subsources: tuple[Name, ...]
    if_exists: bool
    cascade: bool
