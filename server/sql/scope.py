"""Name resolution: relations by the catalog, columns by the tables of FROM.

Messages, SQLSTATEs and hints are PostgreSQL's (parse_relation.c). Callers pass the error position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.relations import Relation
from catalog.objects.sources import Source
from catalog.objects.types import Domain, EnumType
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.sql.expressions import Column, ColumnRef, Expression, walk
from server.sql.grammar.dialect import CycleClause, SearchClause
from server.sql.relations import RecursiveRows

ID_SCHEMA = "$id"  # `"$id"."u12"` names a relation by its id, in the stored text of views


@dataclass(frozen=True, slots=True)
class Entry:
    """A column that can be named. `table` is its table's alias; None for the merged column of a USING.

    `visible`: it can be named without its table and is part of `*`; false for the columns that a USING has merged.
    `is_extended`: an outer join may have filled its table's row with NULLs.
    `is_row`: an additional entry for a function's only column under the table alias; not part of `*`.
    `is_listed`: false for a column that can be named but is not part of `*`.
    """

    name: str
    expression: Expression
    table: str | None
    visible: bool = True
    is_row: bool = False
    is_extended: bool = False
    is_listed: bool = True


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A WITH query. It is bound again for every reference.

    `visible`: those that it can reference. `recursive`: it names itself. `rows`: set inside its own query; the rows of
    the previous iteration. `search` and `cycle`: its clauses.
    """

    query: exp.Expr
    columns: tuple[str, ...]
    visible: CommonTables
    recursive: bool = False
    rows: RecursiveRows | None = None
    search: SearchClause | None = None
    cycle: CycleClause | None = None


@dataclass(frozen=True, slots=True)
class CommonTables:
    """The WITH queries that can be named at a place: the first `count` items of a WITH, then those `around` this WITH.

    All places in a WITH share `items`, which has the number of each item: copies for n items would take n * n memory.
    """

    items: Mapping[str, tuple[int, CommonTable]] = field(default_factory=dict)
    count: int = 0
    around: CommonTables | None = None

    def find(self, name: str) -> CommonTable | None:
        tables: CommonTables | None = self
        while tables is not None:
            number, table = tables.items.get(name, (tables.count, None))
            if number < tables.count:
                return table
            tables = tables.around
        return None


@dataclass(slots=True)
class Scope:
    """The names that are visible in one SELECT. `parent` is the scope of the enclosing query.

    `clause`: the clause in which aggregates are not allowed, for messages; None where they are allowed. `real_names`:
    the alias of each table by its real name, for hints. `hidden`: tables of this FROM that cannot be referenced here.
    `sets`: collects the columns and arrays of set-returning functions; None where these are not allowed. `level`:
    identifies the SELECT, and is the same in the scopes of its clauses; 0 outside a SELECT.
    """

    entries: list[Entry] = field(default_factory=list)
    parent: Scope | None = None
    common_tables: CommonTables = field(default_factory=CommonTables)
    clause: str | None = None
    real_names: dict[str, str] = field(default_factory=dict)
    windows: dict[str, exp.Expr] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    sets: list[tuple[Column, Expression]] | None = None
    level: int = 0

    @property
    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def table_entries(self, table: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.table == table and not entry.is_row]

    def has_table(self, table: str) -> bool:
        return any(entry.table == table for entry in self.entries) or table in self.real_names.values()


def in_clause(scope: Scope, clause: str | None) -> Scope:
    """A scope with the same names for a clause in which aggregates are not allowed (None: allowed)."""
    return Scope(
        scope.entries, scope.parent, scope.common_tables, clause, scope.real_names, scope.windows, level=scope.level
    )


def alone(scope: Scope) -> Scope:
    """The scope of a query in FROM or of a branch of UNION: enclosing queries and WITH, but no tables of this FROM."""
    return Scope(parent=scope.parent, common_tables=scope.common_tables)


def find_relation(
    state: CatalogState, parts: tuple[str, ...], database: str, search_path: Sequence[str], position: int | None
) -> Relation:
    """The relation with a name of one to three parts, or with an id (`"$id"."u12"`).

    Raises 42P01 if it does not exist, 0A000 for a name in an unknown database, 42809 for an index or a hold.
    """
    if len(parts) == 2 and parts[0] == ID_SCHEMA:
        item = state.items.get(ObjectId(parts[1]))
    else:
        item = state.resolve(parts, database, search_path)
    if isinstance(item, EnumType | Domain):
        item = None  # the name of a type is not one of a relation
    if item is None and len(parts) == 3 and all(parts[0] != known.name for known in state.databases.values()):
        message = f'cross-database references are not implemented: "{".".join(parts)}"'
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=position)
    if item is None:
        raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{".".join(parts)}" does not exist', position=position)
    return as_relation(item, position)


def as_relation(item: Item, position: int | None) -> Relation:
    """The item, if it is a relation. PgError 42809 otherwise, and for a source whose outputs are other relations."""
    if isinstance(item, Source) and not item.columns:
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'cannot open relation "{item.name}"',
            detail="The source has no rows itself: its subsources and the tables created from it have them.",
            position=position,
        )
    if not isinstance(item, Relation):
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'cannot open relation "{item.name}"',
            detail=f"This operation is not supported for {item.plural}.",
            position=position,
        )
    return item


def level_of(scope: Scope, columns: Collection[int]) -> Scope:
    """The innermost query level that contains one of the columns; `scope` if there is none."""
    if scope.parent is not None and columns:
        for level in scope.chain:
            for entry in level.entries:
                if any(isinstance(n, ColumnRef) and n.column.id in columns for n in walk(entry.expression)):
                    return level
    return scope


def find_column(scope: Scope, table: str | None, name: str, position: int | None) -> Expression:
    """The column, from this query or from the nearest enclosing one. 42703, 42702 (ambiguous), 42P01, 0A000 (a row)."""
    for level in scope.chain:
        if table is None:
            matches = [e for e in level.entries if e.name == name and e.visible]
        else:
            matches = [e for e in level.table_entries(table) if e.name == name]
        if len(matches) > 1:
            raise PgError(SqlState.AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', position=position)
        if matches:
            return located(matches[0], position)
        if table is not None and level.has_table(table):
            raise _no_column(scope, table, name, position)
    if table is not None:
        raise no_table(scope, table, position)
    if any(entry.table == name for level in scope.chain for entry in level.entries):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "a row as a value is not supported",
            position=position,
            hint="Name the columns, or convert the row: row_to_json(t).",
        )
    raise _no_column(scope, None, name, position)


def located(entry: Entry, position: int | None) -> Expression:
    """The entry's expression with its written name and position, if it is a column reference."""
    if isinstance(entry.expression, ColumnRef):
        written = f"{entry.table}.{entry.name}" if entry.table else entry.name
        return ColumnRef(entry.expression.column, written, position)
    return entry.expression


def no_table(scope: Scope, table: str, position: int | None) -> PgError:
    for level in scope.chain:
        if table in level.hidden:
            return PgError(
                SqlState.UNDEFINED_TABLE,
                f'invalid reference to FROM-clause entry for table "{table}"',
                detail=f'There is an entry for table "{table}", but it cannot be referenced from this part of the '
                "query.",
                position=position,
            )
        alias = level.real_names.get(table)
        if alias is not None and alias != table:
            return PgError(
                SqlState.UNDEFINED_TABLE,
                f'invalid reference to FROM-clause entry for table "{table}"',
                hint=f'Perhaps you meant to reference the table alias "{alias}".',
                position=position,
            )
    return PgError(SqlState.UNDEFINED_TABLE, f'missing FROM-clause entry for table "{table}"', position=position)


TABLE_OID = "tableoid"
XMAX = "xmax"
SYSTEM_COLUMNS = frozenset(("ctid", "xmin", XMAX, "cmin", "cmax", TABLE_OID))


def _no_column(scope: Scope, table: str | None, name: str, position: int | None) -> PgError:
    if name in SYSTEM_COLUMNS:
        return PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'system column "{name}" is not supported',
            hint="Identify rows by a key of the table. "
            "Without one, ALTER TABLE ... ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY numbers the rows.",
            position=position,
        )
    hint = None
    near = _nearest(scope, table, name)
    if near is not None:
        hint = f'Perhaps you meant to reference the column "{near}".'
    shown = f"{table}.{name}" if table is not None else f'"{name}"'
    return PgError(SqlState.UNDEFINED_COLUMN, f"column {shown} does not exist", hint=hint, position=position)


def _nearest(scope: Scope, table: str | None, name: str) -> str | None:
    """The visible column with the most similar name: at most 3 edits and at most half of the name; None on a tie."""
    found: dict[str, int] = {}
    for level in scope.chain:
        for entry in level.entries:
            if entry.table is None or (table is not None and entry.table != table):
                continue
            distance = _edits(name, entry.name)
            if distance <= 3 and distance <= len(name) // 2:
                found[f"{entry.table}.{entry.name}"] = distance
    least = min(found.values(), default=None)
    best = [shown for shown, distance in found.items() if distance == least]
    return best[0] if len(best) == 1 else None


def _edits(a: str, b: str) -> int:
    """The Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]
