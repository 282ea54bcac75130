"""Sinks."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name
from server.sql.grammar.statements.sources import FormatClause


@dataclass(frozen=True, slots=True)
class CreateSink(Definition):
    """CREATE SINK name FROM on INTO system. `options`: as in `SinkDefinition`. `position`: of INTO.

    `snapshot`: false with CONTINUE.
    """

    tag = "CREATE SINK"

    name: Name
    on: Name
    system: str
    connection: Name | None
    options: tuple[tuple[str, str], ...]
    key: tuple[Ident, ...]
    format: FormatClause | None
    snapshot: bool
    as_of: Expr | None
    if_not_exists: bool
    position: int
