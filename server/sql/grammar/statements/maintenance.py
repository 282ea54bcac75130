"""VACUUM and ANALYZE."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Name, Parsed


@dataclass(frozen=True, slots=True)
class Maintain(Parsed):
    """VACUUM or ANALYZE, which is the `tag`. No tables: all of them. They have no effect."""

    tag: str
    tables: tuple[Name, ...]
