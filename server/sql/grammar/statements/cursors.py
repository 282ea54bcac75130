"""Cursors."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Ident, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.show import ShowStatement
from server.sql.grammar.statements.subscribe import Subscribe


@dataclass(frozen=True, slots=True)
class Declare(Parsed):
    """DECLARE name CURSOR [WITHOUT HOLD] FOR statement."""

    name: Ident
    statement: Select | Subscribe | ShowStatement


@dataclass(frozen=True, slots=True)
class Fetch(Parsed):
    """count None: ALL. `timeout` is the text of an interval."""

    cursor: Ident
    count: int | None
    timeout: str | None


@dataclass(frozen=True, slots=True)
class CloseCursor(Parsed):
    """name None: ALL."""

    name: Ident | None
