"""WITH whose items write: INSERT, UPDATE, DELETE and MERGE in a WITH clause."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.ids import ObjectId
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Ident, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update


@dataclass(frozen=True, slots=True)
class WritingItem:
    """An item `name AS (statement)`. The later parts reference the rows of its RETURNING as the relation `id`.

    `returns`: whether it has RETURNING.
    """

    name: Ident
    id: ObjectId
    statement: Insert | Update | Delete | Merge
    returns: bool


@dataclass(frozen=True, slots=True)
class WithWrites(Parsed):
    """`items` are those that write, in order; the queries of WITH are parts of the statements that may read them."""

    items: tuple[WritingItem, ...]
    main: Select | Insert | Update | Delete | Merge
