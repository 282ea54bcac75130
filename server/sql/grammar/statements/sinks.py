"""Sinks."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Name
from server.sql.grammar.statements.sources import FormatClause


@dataclass(frozen=True, slots=True)
class CreateSink(Definition):
    """CREATE SINK name FROM on INTO FILE path. `position`: of INTO."""

    tag = "CREATE SINK"

    name: Name
    on: Name
    path: str
    format: FormatClause | None
    snapshot: bool
    if_not_exists: bool
    position: int
