"""WITH whose items write: INSERT, UPDATE, DELETE and MERGE in a WITH clause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from catalog.ids import ObjectId
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Ident, Parsed
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.writes import Delete, Insert, Update

Write: TypeAlias = Insert | Update | Delete | Merge


@dataclass(frozen=True, slots=True)
class WritingItem:
    """An item `name AS (statement)`. The later parts reference its rows, those of RETURNING, as the relation `id`.

    The statement is a query if it must be computed once. `returns`: whether it has rows.
    """

    name: Ident
    id: ObjectId
    statement: Select | Write
    returns: bool


@dataclass(frozen=True, slots=True)
class WithWrites(Parsed):
    """`items`: those that write or are computed once, in order. Other queries of WITH belong to what may read them."""

    items: tuple[WritingItem, ...]
    main: Select | Write
