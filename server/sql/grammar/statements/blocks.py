"""DO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from protocol.pgwire.errors import SqlState
from server.sql.grammar.statements.alter_table import AlterTable
from server.sql.grammar.statements.domains import ConstrainDomain
from server.sql.grammar.statements.objects import CreateExtension, DropBuiltIn
from server.sql.grammar.statements.parts import Definition, Parsed

InBlock: TypeAlias = Definition | AlterTable | ConstrainDomain | CreateExtension | DropBuiltIn
"""The statements that a block can have."""


@dataclass(frozen=True, slots=True)
class DoBlock(Parsed):
    """DO with a block of one statement, whose offsets and positions are those in the block.

    `handled`: the SQLSTATEs of errors that its EXCEPTION clause ignores.
    """

    OTHERS: ClassVar[str] = "others"

    statement: InBlock
    handled: tuple[str, ...]

    def handles(self, state: SqlState) -> bool:
        """Whether the block ignores an error. WHEN OTHERS does not ignore that the statement was cancelled."""
        return state in self.handled or (self.OTHERS in self.handled and state is not SqlState.QUERY_CANCELED)
