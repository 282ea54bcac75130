"""Cursors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from server.sql.grammar.statements.parts import Ident, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.show import ShowStatement
from server.sql.grammar.statements.subscribe import Subscribe


class Direction(Enum):
    """How FETCH and MOVE count: rows after or before the position, or the number of a row from there or from 1."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RELATIVE = "relative"
    ABSOLUTE = "absolute"


@dataclass(frozen=True, slots=True)
class Declare(Parsed):
    """DECLARE name [BINARY] [[NO] SCROLL] CURSOR [WITH HOLD] FOR statement. scroll None: neither is given."""

    name: Ident
    statement: Select | Subscribe | ShowStatement
    scroll: bool | None = None
    hold: bool = False
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Fetch(Parsed):
    """count None: ALL; not negative unless absolute or relative. `timeout` is the text of an interval."""

    cursor: Ident
    direction: Direction
    count: int | None
    timeout: str | None


@dataclass(frozen=True, slots=True)
class Move(Parsed):
    """As FETCH, without the rows."""

    cursor: Ident
    direction: Direction
    count: int | None


@dataclass(frozen=True, slots=True)
class CloseCursor(Parsed):
    """name None: ALL."""

    name: Ident | None
