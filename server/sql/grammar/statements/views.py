"""CREATE of views, materialized views and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Query


@dataclass(frozen=True, slots=True)
class CreateView(Definition):
    tag = "CREATE VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(Definition):
    tag = "CREATE MATERIALIZED VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex(Definition):
    """CREATE [UNIQUE] INDEX [name] ON relation (keys). `keys` empty: CREATE DEFAULT INDEX."""

    tag = "CREATE INDEX"

    name: Ident | None
    on: Name
    keys: tuple[Expr, ...]
    if_not_exists: bool
    retain: str | None = None
    unique: bool = False
    nulls_not_distinct: bool = False
