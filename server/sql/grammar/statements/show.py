"""SHOW."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name, Parsed


class ShowKind(StrEnum):
    """The kinds of object that SHOW lists, and the running subscriptions."""

    DATABASES = "databases"
    SCHEMAS = "schemas"
    TABLES = "tables"
    VIEWS = "views"
    MATERIALIZED_VIEWS = "materialized views"
    INDEXES = "indexes"
    HOLDS = "holds"
    CLUSTERS = "clusters"
    OBJECTS = "objects"
    ROLES = "roles"
    PRIVILEGES = "privileges"
    SOURCES = "sources"
    CONNECTIONS = "connections"
    SECRETS = "secrets"
    SINKS = "sinks"
    SEQUENCES = "sequences"
    TYPES = "types"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(frozen=True, slots=True)
class ShowVariable(Parsed):
    """name None: ALL. SHOW TRANSACTION ISOLATION LEVEL and SHOW TIME ZONE have the names of their variables."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ShowObjects(Parsed):
    """SHOW TABLES [FROM schema] [LIKE pattern] and so on; `on` is the relation of SHOW INDEXES ON."""

    kind: ShowKind
    schema: Name | None
    on: Name | None
    like: str | None


@dataclass(frozen=True, slots=True)
class ShowColumns(Parsed):
    relation: Name
    like: str | None


@dataclass(frozen=True, slots=True)
class ShowCreate(Parsed):
    kind: ObjectKind
    name: Name


ShowStatement = ShowVariable | ShowObjects | ShowColumns | ShowCreate
