"""The statements of a sink into PostgreSQL.

Rows are equal if the texts of all their columns are, and NULL equals NULL: this is defined for all types.

- With a key, rows are joined by it, and their other columns are compared as they are stored, which is much cheaper than
  to print them. Columns of types that have several stored forms of the same text are converted to text.
- Without a key, the texts of the records are compared, because such conditions can be hashed. Columns that are NOT NULL
  are compared as values, too, so that indexes on them can be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.ids import Timestamp
from protocol.pgwire.types import NETWORK_TYPES
from server.ingest.postgres.replication import identifier, quoted

STAGING = "tidewire_staging"
FRONTIERS = "tidewire.sinks"

CREATE_FRONTIERS = f"""
SELECT pg_advisory_xact_lock(hashtext('{FRONTIERS}'));  -- several sinks may start at the same time
CREATE SCHEMA IF NOT EXISTS tidewire;
CREATE TABLE IF NOT EXISTS {FRONTIERS} (
    id text PRIMARY KEY,
    name text NOT NULL,
    target text NOT NULL,
    frontier bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    row_count bigint,
    files bigint
) WITH (fillfactor = 50)
"""
FRONTIERS_EXIST = f"SELECT to_regclass('{FRONTIERS}') IS NOT NULL"
ADD_COUNTS = f"ALTER TABLE {FRONTIERS} ADD COLUMN IF NOT EXISTS row_count bigint, ADD COLUMN IF NOT EXISTS files bigint"
"""For a table that an earlier version created. `row_count` is then NULL."""
COUNTS_EXIST = f"""
SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{FRONTIERS}') AND attname = 'files')
"""


STORED = NETWORK_TYPES | {
    *("bool", "int2", "int4", "int8", "numeric", "date", "time", "timestamp", "timestamptz", "uuid", "bytea", "jsonb")
}  # types whose values have the same text if and only if they are stored as the same bytes, unlike the NaN of floats

PREFER_INDEX = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
"""For few staged rows, of which PostgreSQL has no statistics: it would often read the whole table."""
PREFER_HASH = """
SELECT set_config('work_mem', '64MB', true) WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB')
"""
"""For many staged rows: a join with the default of 4 MB writes most of the table to temporary files."""


def read_frontier(id: str) -> str:
    """A query for the frontier of a sink. It has no row if the sink has not begun to write."""
    return f"SELECT frontier FROM {FRONTIERS} WHERE id = {_text(id)}"


def insert_frontier(id: str, name: str, target: str, frontier: Timestamp) -> str:
    """Stores the first frontier of a sink. Fails if the sink has one."""
    values = f"{_text(id)}, {_text(name)}, {_text(target)}, {int(frontier)}"
    return f"INSERT INTO {FRONTIERS} (id, name, target, frontier) VALUES ({values})"


def advance_frontier(
    id: str, before: Timestamp, after: Timestamp, added_rows: int = 0, files: str | None = None
) -> str:
    """Changes nothing if the frontier is not `before`. Locks the row, so that only one server writes.

    `added_rows`: by how many rows the table grows in the transaction. `files`: `Statements.files`, so that nothing is
    changed either if the table has other files than when its rows were counted.
    """
    condition = "" if files is None else f" AND files = {files}"
    return (
        f"UPDATE {FRONTIERS} SET frontier = {int(after)}, row_count = row_count + {added_rows}, updated_at = now() "
        f"WHERE id = {_text(id)} AND frontier = {int(before)}{condition}"
    )


def lock_frontier(id: str) -> str:
    return f"SELECT FROM {FRONTIERS} WHERE id = {_text(id)} FOR UPDATE"


def doubt_rows(id: str) -> str:
    """Makes the sink count the rows of its table before it writes again."""
    return f"UPDATE {FRONTIERS} SET files = NULL WHERE id = {_text(id)}"


def delete_frontier(id: str) -> str:
    """Removes the frontier of a sink, if it has one."""
    return f"DELETE FROM {FRONTIERS} WHERE id = {_text(id)}"


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for a table. `table`: its quoted name. `columns`: those of the collection, in its order.

    `key`: positions of the columns of the key; None: rows are a multiset. `not_null`: the positions of the columns that
    are NOT NULL in the table. `stored`: of those that can be compared as they are stored. `is_divided`: whether rows
    are in partitions or in tables that inherit from it.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[int, ...] | None
    not_null: frozenset[int]
    stored: frozenset[int]
    is_divided: bool = False

    @property
    def files(self) -> str:
        """An expression: a number that changes when the table is truncated, rewritten or created again."""
        table = f"to_regclass({_text(self.table)})"
        if not self.is_divided:
            return f"pg_relation_filenode({table})::bigint"
        return f"""(
            WITH RECURSIVE tree AS (
                SELECT {table}::oid AS oid
                UNION ALL SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid
            )
            SELECT coalesce(sum(pg_relation_filenode(oid)::bigint), 0)::bigint FROM tree
        )"""

    def count_rows(self, id: str) -> str:
        """A query for the number of rows that the table should have, NULL if unknown, and the number that it has.

        Both are of one moment, so that transactions of the sink do not matter.
        """
        return f"SELECT row_count, {self.row_count} FROM {FRONTIERS} WHERE id = {_text(id)}"

    def accept_rows(self, id: str, count: str) -> str:
        """Stores the number of rows, and the files in which they are. `count`: an expression."""
        return f"UPDATE {FRONTIERS} SET row_count = {count}, files = {self.files} WHERE id = {_text(id)}"

    @property
    def values(self) -> tuple[int, ...]:
        """The positions of the columns that are not in the key."""
        return tuple(i for i in range(len(self.columns)) if self.key is None or i not in self.key)

    @property
    def row_count(self) -> str:
        """An expression."""
        return f"(SELECT count(*) FROM {self.table})"

    @property
    def create_staging(self) -> str:
        """Its columns are those of `NetChanges.staged`, with the types of the table."""
        columns = [f"{identifier(name)} AS c{i}" for i, name in enumerate(self.columns)]
        if self.key is None:
            columns.append('0::bigint AS "count"')
        else:
            columns += [f"{identifier(self.columns[i])} AS n{i}" for i in self.values]
            columns.append("true AS updated")
        selected = f"SELECT {', '.join(columns)} FROM {self.table} WITH NO DATA"
        return f"CREATE TEMPORARY TABLE {STAGING} ON COMMIT DELETE ROWS AS {selected}"

    @property
    def delete(self) -> str:
        """Deletes what is staged and not updated."""
        if self.key is None:
            return f"""
                WITH found AS (
                    SELECT t.tableoid AS file, t.ctid AS place, s."count" AS wanted,
                           row_number() OVER (PARTITION BY s.ctid) AS number
                    FROM {self.table} t JOIN pg_temp.{STAGING} s ON {self._same_rows}
                )
                DELETE FROM {self.table} t USING found
                WHERE t.tableoid = found.file AND t.ctid = found.place AND found.number <= found.wanted
            """
        return f"DELETE FROM {self.table} t USING pg_temp.{STAGING} s WHERE NOT s.updated AND {self._same_rows}"

    @property
    def update(self) -> str:
        """Updates what is staged and updated."""
        new = ", ".join(f"{identifier(self.columns[i])} = s.n{i}" for i in self.values)
        return f"UPDATE {self.table} t SET {new} FROM pg_temp.{STAGING} s WHERE s.updated AND {self._same_rows}"

    @property
    def find_difference(self) -> str:
        """Returns the text of a staged row that the table does not have, and of the row with its key, or NULL."""
        every = range(len(self.columns))
        if self.key is None:
            return f"""
                SELECT {_record("s", every)}::text, NULL::text
                FROM pg_temp.{STAGING} s LEFT JOIN {self.table} t ON {self._same_rows}
                GROUP BY s.ctid, 1, s."count" HAVING count(t.ctid) < s."count" LIMIT 1
            """
        return f"""
            SELECT {_record("s", every)}::text,
                   CASE WHEN t.ctid IS NOT NULL THEN {self._found(every)}::text END
            FROM pg_temp.{STAGING} s LEFT JOIN {self.table} t ON {self._same_keys}
            WHERE t.ctid IS NULL OR NOT ({self._same_values}) LIMIT 1
        """

    @property
    def _same_rows(self) -> str:
        if self.key is not None:
            return f"{self._same_keys} AND {self._same_values}"
        found, wanted = self._found(self.values), _record("s", self.values)
        return " AND ".join((*self._equal(sorted(self.not_null)), f"{found}::text = {wanted}::text"))

    @property
    def _same_keys(self) -> str:
        return " AND ".join(self._equal(self.key or ()))

    @property
    def _same_values(self) -> str:
        """With a key: whether the other columns are equal."""
        if not self.values:
            return "true"
        types = {i: "" if i in self.stored else "::text" for i in self.values}
        found = ", ".join(f"t.{identifier(self.columns[i])}{type}" for i, type in types.items())
        wanted = ", ".join(f"s.c{i}{type}" for i, type in types.items())
        return f"pg_catalog.record_image_eq(ROW({found}), ROW({wanted}))"

    def _equal(self, positions: Iterable[int]) -> list[str]:
        return [f"t.{identifier(self.columns[i])} = s.c{i}" for i in positions]

    def _found(self, positions: Sequence[int]) -> str:
        """The record of the table's columns."""
        return f"ROW({', '.join(f't.{identifier(self.columns[i])}' for i in positions)})"


def _record(table: str, positions: Sequence[int]) -> str:
    return f"ROW({', '.join(f'{table}.c{i}' for i in positions)})"


def _text(value: str) -> str:
    return quoted(value, "'")
