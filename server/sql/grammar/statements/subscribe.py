"""SUBSCRIBE."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Expr, Ident, Name, Parsed, Query
from server.sql.grammar.statements.queries import AsOf
from server.sql.grammar.statements.show import ShowStatement


@dataclass(frozen=True, slots=True)
class EnvelopeUpsert:
    """ENVELOPE UPSERT (KEY (keys))."""

    keys: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class EnvelopeDebezium:
    """ENVELOPE DEBEZIUM (KEY (keys))."""

    keys: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class WithinTimestampOrderBy:
    """WITHIN TIMESTAMP ORDER BY terms; each tree is an `exp.Ordered`."""

    terms: tuple[Expr, ...]


Output = EnvelopeUpsert | EnvelopeDebezium | WithinTimestampOrderBy


@dataclass(frozen=True, slots=True)
class Subscribe(Parsed):
    """SUBSCRIBE [TO] source. The defaults are `progress` false and `snapshot` true."""

    source: Name | Query | ShowStatement
    output: Output | None
    progress: bool
    snapshot: bool
    as_of: AsOf | None
    up_to: Expr | None
