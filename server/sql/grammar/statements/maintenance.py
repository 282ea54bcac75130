"""VACUUM, ANALYZE, REINDEX and REFRESH."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Name, Parsed


@dataclass(frozen=True, slots=True)
class Maintain(Parsed):
    """VACUUM, ANALYZE or CHECKPOINT, which is the `tag`. No tables: all of them. It has no effect."""

    tag: str
    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Reindex(Parsed):
    """REINDEX of a `kind`: index, table, schema, database or system. It has no effect. `name` None: the database."""

    kind: str
    name: Name | None
    concurrently: bool = False


@dataclass(frozen=True, slots=True)
class Refresh(Parsed):
    """REFRESH MATERIALIZED VIEW. It has no effect."""

    name: Name
