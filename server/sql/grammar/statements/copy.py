"""COPY."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Ident, Name, Options, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update


@dataclass(frozen=True, slots=True)
class CopyFrom(Parsed):
    """COPY table (columns) FROM STDIN WHERE condition. Options in the old syntax are converted to the new one."""

    table: Name
    columns: tuple[Ident, ...]
    options: Options
    condition: Expr | None = None


@dataclass(frozen=True, slots=True)
class CopyRelation:
    """COPY relation (columns) TO STDOUT."""

    relation: Name
    columns: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class CopyTo(Parsed):
    """COPY relation or (statement) TO STDOUT."""

    source: CopyRelation | Select | Insert | Update | Delete | Merge | WithWrites | Subscribe
    options: Options
