"""DuckDB over the system relations. A relation is loaded when a query first names it.

The schemas are `pg` (pg_catalog), `info` (information_schema), `mz` (mz_catalog and mz_internal), `fn` (functions) and
`tw` (helpers of functions). A query's dependencies are found by matching qualified names in its text, and in the texts
of the views and functions that it depends on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from server.pg_catalog.static import BY_NAME, arrow_type

Rows = Callable[[str, str], pa.Table | None]
"""The rows of a relation by DuckDB schema and name; None if there is no such relation."""

SCHEMAS = {"pg_catalog": "pg", "information_schema": "info", "mz_catalog": "mz", "mz_internal": "mz"}
_NAMES = re.compile(r'(?<![\w.])"?\b(pg|info|mz|fn|tw)"?\."?(\w+)"?')
_SETTINGS = {
    "threads": 1,  # queries are small, and Spark has the cores
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "256MB",
    "temp_directory": "",  # a query that needs more fails; it does not write to disk
}
_DUCKDB_TYPES = {
    pa.uint32(): "UINTEGER",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.binary(): "BLOB",
    pa.month_day_nano_interval(): "INTERVAL",
    pa.decimal128(38, 0): "DECIMAL(38,0)",
}


@dataclass(frozen=True, slots=True)
class Definition:
    """A view or function: the CREATE statement and the (schema, name) pairs that it depends on."""

    text: str
    needs: tuple[tuple[str, str], ...]


def named_in(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(_NAMES.findall(text)))


def _statements(file: str) -> Iterator[str]:
    text = (Path(__file__).parent / file).read_text()
    text = re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    return (statement.strip() for statement in re.split(r";\s*\n", text) if statement.strip())


@cache
def definitions() -> Mapping[tuple[str, str], Definition]:
    """Returns the views and functions of `views.sql` and `functions.sql`, by (schema, name)."""
    found = {}
    for file in ("functions.sql", "views.sql"):
        for statement in _statements(file):
            schema, name = _NAMES.findall(statement)[0]
            found[schema, name] = Definition(statement, tuple(n for n in named_in(statement) if n != (schema, name)))
    return found


def needed_by(query: str) -> frozenset[tuple[str, str]]:
    """The (schema, name) pairs that a query names, and those that its views and functions depend on."""
    found: set[tuple[str, str]] = set()
    queue = list(named_in(query))
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += definitions()[name].needs if name in definitions() else ()
    return frozenset(found)


def is_function(name: str) -> bool:
    """Whether a query can call the function: helpers are no functions of PostgreSQL."""
    return ("fn", name) in definitions()


def is_table_function(name: str) -> bool:
    """Whether the function, for which `is_function` holds, returns rows."""
    return " AS TABLE" in definitions()["fn", name].text


def duckdb_type(type: str) -> str:
    """Returns DuckDB's type name for the type of a system relation's column."""
    arrow = arrow_type(type)
    return f"{_DUCKDB_TYPES[arrow.value_type]}[]" if pa.types.is_list(arrow) else _DUCKDB_TYPES[arrow]


class Database:
    """A DuckDB database, serialized by a lock. Methods raise duckdb.Error for a query that DuckDB rejects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)  # type: ignore[arg-type]
        self._defined: set[tuple[str, str]] = set()
        self._loaded: set[tuple[str, str]] = set()
        self._rows: Rows | None = None
        for statement in (
            *(f"CREATE SCHEMA {schema}" for schema in ("pg", "info", "mz", "fn", "tw")),
            "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
            "SET integer_division = true",
            "SET TimeZone = 'UTC'",
            "SET python_enable_replacements = false",  # queries cannot read this program's variables as tables
        ):
            self._connection.execute(statement)

    def columns(self, query: str, rows: Rows) -> list[tuple[str, str]]:
        """Returns (name, DuckDB type) of the query's columns."""
        with self._lock:
            self._look_at(rows)
            self._bring(query, rows)
            return [(row[0], row[1]) for row in self._connection.execute(f"DESCRIBE {query}").fetchall()]

    def run(self, query: str, rows: Rows, given: Mapping[tuple[str, str], pa.Table] = MappingProxyType({})) -> pa.Table:
        """Runs the query over the relations of `rows`. Relations in `given` are loaded for every run.

        The other relations stay loaded for later queries over the same `rows` (compared by identity).
        """
        with self._lock:
            self._look_at(rows)
            for (schema, name), table in given.items():
                self._load(schema, name, table)
            self._bring(query, rows)
            return _with_infinities(self._connection.sql(query).to_arrow_table())

    def _look_at(self, rows: Rows) -> None:
        """Marks all relations as not loaded if they were loaded from other `rows`."""
        if rows is not self._rows:
            self._loaded.clear()
            self._rows = rows

    def _bring(self, text: str, rows: Rows) -> None:
        for name in named_in(text):
            self._need(name, rows)

    def _need(self, name: tuple[str, str], rows: Rows) -> None:
        """Loads a relation, or defines a view or function after its dependencies. After an error, it is retried."""
        if name in self._loaded:
            return
        definition = definitions().get(name)
        if definition is not None:
            for needed in definition.needs:
                self._need(needed, rows)
            if name not in self._defined:
                self._define(name, definition)
                self._defined.add(name)
            self._loaded.add(name)
            return
        table = rows(*name)
        if table is not None:  # otherwise text inside a literal, or an unknown name, which DuckDB reports
            self._load(*name, table)

    def _define(self, name: tuple[str, str], definition: Definition) -> None:
        schema, view = name
        if schema in ("fn", "tw"):
            self._connection.execute(definition.text)
            return
        body = definition.text.partition(" AS\n")[2] or definition.text.partition(" AS ")[2]
        given = {row[0] for row in self._connection.execute(f"DESCRIBE {body}").fetchall()}
        relation = BY_NAME["pg_catalog" if schema == "pg" else "information_schema", view]
        columns = ", ".join(_column(c.name, c.name in given, duckdb_type(c.type)) for c in relation.columns)
        self._connection.execute(f'CREATE VIEW {schema}."{view}" AS SELECT {columns} FROM ({body}) AS v')

    def _load(self, schema: str, name: str, table: pa.Table) -> None:
        self._connection.register("loaded", table)
        self._connection.execute(f'CREATE OR REPLACE TABLE {schema}."{name}" AS SELECT * FROM loaded')
        self._connection.unregister("loaded")
        self._loaded.add((schema, name))


def _with_infinities(table: pa.Table) -> pa.Table:
    """The rows with -infinity as the least integer. In DuckDB it is the negative greatest one."""
    for number, type in enumerate(table.schema.types):
        if type in _WIDTHS:
            values = table.column(number).cast(_WIDTHS[type])
            least = -1 << _WIDTHS[type].bit_width - 1
            values = pc.if_else(pc.equal(values, least + 1), pa.scalar(least, values.type), values)
            table = table.set_column(number, table.field(number), values.cast(type))
    return table


_WIDTHS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64(),
           pa.timestamp("us", "Etc/UTC"): pa.int64()}  # fmt: skip


def _column(name: str, given: bool, type: str) -> str:
    value = f'v."{name}"' if given else "NULL"
    return f'CAST({value} AS {type}) AS "{name}"'
