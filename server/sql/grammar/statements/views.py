"""CREATE of views, materialized views and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Query


@dataclass(frozen=True, slots=True)
class CreateView(Definition):
    """`check_option`: `local` or `cascaded`; None without one."""

    tag = "CREATE VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    temporary: bool = False
    check_option: str | None = None


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(Definition):
    """`with_data` False: WITH NO DATA, which has no effect."""

    tag = "CREATE MATERIALIZED VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    retain: str | None = None
    with_data: bool = True


@dataclass(frozen=True, slots=True)
class IndexKey:
    """`operator_class` None: the default one. `order`, `nulls`: the words that are given, such as desc and first."""

    expression: Expr
    operator_class: Name | None = None
    order: str | None = None
    nulls: str | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex(Definition):
    """CREATE [UNIQUE] INDEX [name] ON relation (keys). `keys` empty: CREATE DEFAULT INDEX.

    `method`: the access method, if it is given. `included`: the columns of INCLUDE. `where`: the condition.
    """

    tag = "CREATE INDEX"

    name: Ident | None
    on: Name
    keys: tuple[IndexKey, ...]
    if_not_exists: bool
    retain: str | None = None
    unique: bool = False
    nulls_not_distinct: bool = False
    method: Ident | None = None
    included: tuple[Ident, ...] = ()
    concurrently: bool = False
    where: Expr | None = None
