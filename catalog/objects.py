"""The objects of the catalog. Ids are never reused: `u12` is a user's object, `s3` a built-in one."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.ids import Diff as Diff
from catalog.ids import ObjectId as ObjectId
from catalog.ids import Timestamp as Timestamp

TIMESTAMP_MAX = 18446744073709551615  # the empty frontier in the protocol; internally it is None


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is the spelling of a PostgreSQL type (`int4`, `numeric(10,2)`, `text[]`); `default` is SQL text."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Database:
    id: ObjectId
    name: str


@dataclass(frozen=True, slots=True)
class Schema:
    """`database_id` is None for the system schemas, which are visible in every database."""

    id: ObjectId
    database_id: ObjectId | None
    name: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The compute resources that run dataflows and queries."""

    id: ObjectId
    name: str


QUICKSTART = Cluster(ObjectId("s1001"), "quickstart")
"""The only cluster: Spark."""


@dataclass(frozen=True, slots=True)
class Table:
    """A user's table. `keys` are PRIMARY KEY and UNIQUE constraints as declared; they are not enforced.

    `retain_ms` is RETAIN HISTORY in milliseconds: how much history stays readable without a hold. None is the server's
    default, 0 retains all history. Materialized views and indexes have it, too.
    """

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    retain_ms: int | None = None

    kind = "table"


@dataclass(frozen=True, slots=True)
class View:
    """`query` is the SELECT with every relation named by id (`"$id"."u12"`), so that a rename does not change it.

    `uses` are the relations that the text names directly.
    """

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]
    query: str
    uses: frozenset[ObjectId]

    kind = "view"


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A view whose result is a collection in the log, with its own frontiers. The fields are those of `View`."""

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]
    query: str
    uses: frozenset[ObjectId]
    retain_ms: int | None = None

    kind = "materialized view"


@dataclass(frozen=True, slots=True)
class Index:
    """`keys`: SQL expressions over the columns of `on`. The index has its own `since` (see `Frontiers`)."""

    id: ObjectId
    schema_id: ObjectId
    name: str
    on: ObjectId
    keys: tuple[str, ...]
    retain_ms: int | None = None

    kind = "index"

    @property
    def columns(self) -> tuple[Column, ...]:
        return ()

    @property
    def uses(self) -> frozenset[ObjectId]:
        return frozenset((self.on,))


@dataclass(frozen=True, slots=True)
class Hold:
    """A durable read hold on the relations `on`, which never change. `max_lag_ms` bounds its lag.

    Its time and status are in `holds.py`.
    """

    id: ObjectId
    schema_id: ObjectId
    name: str
    on: tuple[ObjectId, ...]
    max_lag_ms: int

    kind = "hold"

    @property
    def columns(self) -> tuple[Column, ...]:
        return ()

    @property
    def uses(self) -> frozenset[ObjectId]:
        return frozenset(self.on)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A built-in relation. Its rows are computed from the server's memory when it is read."""

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]

    kind = "system table"


Item = Table | View | MaterializedView | Index | Hold | SystemTable
Relation = Table | View | MaterializedView | SystemTable  # can be named in FROM
Classed = Relation | Index  # listed in pg_class; a hold is not a relation
Collection = Table | MaterializedView  # stored in the log
Retained = Table | MaterializedView | Index  # has a `since` and RETAIN HISTORY
