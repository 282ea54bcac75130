"""Prepared statements."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.pgwire.types import PgType
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Ident, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update


@dataclass(frozen=True, slots=True)
class Prepare(Parsed):
    """`types` are the types of the first parameters; the planner infers the types of the others."""

    name: Ident
    types: tuple[PgType, ...]
    statement: Select | Insert | Update | Delete | Merge | WithWrites


@dataclass(frozen=True, slots=True)
class Execute(Parsed):
    name: Ident
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Deallocate(Parsed):
    """name None: ALL."""

    name: Ident | None
