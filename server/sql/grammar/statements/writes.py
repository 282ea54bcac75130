"""INSERT, UPDATE, DELETE and TRUNCATE."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.literal_rows import LiteralRows
from server.sql.grammar.statements.parts import Expr, Ident, Name, Parsed, Query


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value` or `column[subscript]... = value` of UPDATE; value None is DEFAULT."""

    column: Ident
    value: Expr | None
    subscripts: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class RowAssignment:
    """`(columns) = (query)` of UPDATE."""

    columns: tuple[Ident, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class OnConflict:
    """ON CONFLICT [(keys) [WHERE condition] | ON CONSTRAINT constraint] DO ...; `assignments` None is DO NOTHING."""

    position: int
    keys: tuple[Expr, ...]
    condition: Expr | None
    constraint: Ident | None
    assignments: tuple[Assignment | RowAssignment, ...] | None
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Insert(Parsed):
    """`columns` empty: all columns, in order. `source` None is DEFAULT VALUES. DEFAULT inside VALUES is an `exp.Var`.

    `common_tables`, also of UPDATE and DELETE: a query that has the WITH in front of the statement.
    `overriding`: OVERRIDING SYSTEM VALUE or USER VALUE, as `system` or `user`.
    `rows`: all rows of an INSERT of many literal rows; `source` then holds only the first row.
    """

    table: Name
    alias: Ident | None
    columns: tuple[Ident, ...]
    source: Query | None
    returning: tuple[Expr, ...]
    rows: LiteralRows | None = None
    common_tables: Query | None = None
    overriding: str | None = None
    conflict: OnConflict | None = None


@dataclass(frozen=True, slots=True)
class Update(Parsed):
    """UPDATE table SET assignments FROM others WHERE ...; `others` is a SELECT without a select list.

    `current_of`, also of DELETE: the cursor of WHERE CURRENT OF. `where` is then false.
    """

    table: Name
    alias: Ident | None
    assignments: tuple[Assignment | RowAssignment, ...]
    where: Expr | None
    returning: tuple[Expr, ...]
    others: Query | None = None
    common_tables: Query | None = None
    current_of: Ident | None = None


@dataclass(frozen=True, slots=True)
class Delete(Parsed):
    """DELETE FROM table USING others WHERE ...; `others` is a SELECT without a select list."""

    table: Name
    alias: Ident | None
    where: Expr | None
    returning: tuple[Expr, ...]
    others: Query | None = None
    common_tables: Query | None = None
    current_of: Ident | None = None


@dataclass(frozen=True, slots=True)
class LockTable(Parsed):
    """LOCK [TABLE] tables [IN mode MODE] [NOWAIT]. `mode` is in lower case."""

    tables: tuple[Name, ...]
    mode: str
    nowait: bool


@dataclass(frozen=True, slots=True)
class Truncate(Parsed):
    """`restarts`: RESTART IDENTITY."""

    tables: tuple[Name, ...]
    restarts: bool = False
