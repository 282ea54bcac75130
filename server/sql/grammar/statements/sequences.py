"""CREATE SEQUENCE and ALTER SEQUENCE, and the options that they share with GENERATED ... AS IDENTITY."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.pgwire.types import PgType
from server.sql.grammar.statements.parts import Definition, Name


@dataclass(frozen=True, slots=True)
class SequenceOption:
    """`name`: as, increment, minvalue, maxvalue, start, restart, cache, cycle, owned by, or sequence name.

    `value` None: NO MINVALUE, NO MAXVALUE, RESTART without a value, or OWNED BY NONE.
    """

    name: str
    value: int | bool | PgType | Name | None
    position: int


@dataclass(frozen=True, slots=True)
class CreateSequence(Definition):
    tag = "CREATE SEQUENCE"

    name: Name
    options: tuple[SequenceOption, ...]
    if_not_exists: bool
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class AlterSequence(Definition):
    tag = "ALTER SEQUENCE"

    name: Name
    options: tuple[SequenceOption, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """GENERATED ALWAYS or BY DEFAULT AS IDENTITY (options), or SERIAL, which is `serial`."""

    always: bool
    options: tuple[SequenceOption, ...] = ()
    serial: bool = False
