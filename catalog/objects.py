"""The kinds of catalog object, one class each. Ids are never reused: `u12` is a user's object, `s3` a built-in one.

A class registers its kind: the class attributes say how the kind is named, which privileges it has and how
PostgreSQL's catalogs show it, and `stored` and `restored` convert its definition to and from JSON. The base classes are
capabilities, which other modules test for, so that they need no change for a new kind:

- `Relation`: has columns and can be named in FROM.
- `DerivedRelation`: a relation with a stored query.
- `Retained`: has a `since` and RETAIN HISTORY, so it can be held.
- `Collection`: a retained relation whose rows are in the log.
- `WrittenCollection`: a collection that commits write, and not a dataflow.
- `SourceOutput`: a written collection that a source fills.

`KINDS` lists the kinds that a schema contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from catalog.ids import Diff as Diff
from catalog.ids import ObjectId as ObjectId
from catalog.ids import Timestamp as Timestamp
from catalog.keys import Key, restored_keys
from catalog.layout import Numbering
from catalog.roles import Privilege
from catalog.source_definition import Format, ForTables, Secret

TIMESTAMPS, UPSTREAM = "timestamps", "upstream"  # an option of sources, and its value
TIMESTAMP_MAX = 18446744073709551615  # the empty frontier in the protocol; internally it is None

_READ_AND_WRITE = frozenset(
    (Privilege.INSERT, Privilege.SELECT, Privilege.UPDATE, Privilege.DELETE, Privilege.TRUNCATE)
)
_CONTAINER = frozenset((Privilege.USAGE, Privilege.CREATE))
_USAGE = frozenset((Privilege.USAGE,))
_SELECT = frozenset((Privilege.SELECT,))


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is the spelling of a PostgreSQL type (`int4`, `numeric(10,2)`, `text[]`); `default` is SQL text."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as the catalog's file has it. `definition` is what the kind's `stored` returned."""

    id: ObjectId
    schema_id: ObjectId
    name: str
    columns: tuple[Column, ...]
    definition: Mapping[str, Any]


class CatalogObject:
    """What all kinds have in common: a name for the kind, and privileges."""

    kind: ClassVar[str]
    """The kind as messages name it, such as `materialized view`."""
    privileges: ClassVar[frozenset[Privilege]] = frozenset()
    """The privileges that apply to the kind: the meaning of ALL. The owner has them by default."""

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        """The privileges that PUBLIC has by default."""
        return frozenset()


@dataclass(frozen=True)
class Database(CatalogObject):
    id: ObjectId
    name: str

    kind = "database"
    privileges = _CONTAINER

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return _USAGE


@dataclass(frozen=True)
class Schema(CatalogObject):
    """`database_id` is None for the system schemas, which are visible in every database."""

    id: ObjectId
    database_id: ObjectId | None
    name: str

    kind = "schema"
    privileges = _CONTAINER

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return _USAGE if self.database_id is None else frozenset()


TEMPORARY = "pg_temp"
"""The name by which a session refers to its schema of temporary objects."""


def temporary_schema_name(process_id: int) -> str:
    """The name of the schema that has the temporary objects of a session."""
    return f"{TEMPORARY}_{process_id}"


def is_temporary(schema: Schema) -> bool:
    """Whether a schema has the temporary objects of a session. No other schema can have such a name."""
    return schema.name.startswith(f"{TEMPORARY}_")


@dataclass(frozen=True)
class Cluster(CatalogObject):
    """The compute resources that run dataflows and queries."""

    id: ObjectId
    name: str

    kind = "cluster"
    privileges = _CONTAINER

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return _USAGE


QUICKSTART = Cluster(ObjectId("s1001"), "quickstart")
"""The only cluster: Spark."""


# -- capabilities ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item(CatalogObject):
    """An object in a schema."""

    id: ObjectId
    schema_id: ObjectId
    name: str

    plural: ClassVar[str]
    """The objects that SHOW lists together with this kind, such as `materialized views`."""
    named_as: ClassVar[str | None] = None
    """The kind that statements such as DROP name, if it is not `kind`."""
    relkind: ClassVar[str | None] = None
    """pg_class.relkind; None for a kind that PostgreSQL's catalogs do not show."""
    is_indexable: ClassVar[bool] = False

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        """The items without which this one cannot exist."""
        return frozenset()

    @property
    def part_of(self) -> ObjectId | None:
        """The item that this one belongs to: it has the other's owner and privileges, and is dropped with it."""
        return None

    @property
    def statement_kind(self) -> str:
        """The kind that DROP, ALTER, COMMENT and SHOW CREATE name."""
        return self.named_as or self.kind

    def stored(self) -> dict[str, object]:
        """The definition as JSON values, without id, schema, name and columns. TypeError for a built-in kind."""
        raise TypeError(f'{self.kind} "{self.name}" is built-in and not stored')

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        """The inverse of `stored`. Definitions of format 1 lack `retain_ms`."""
        raise TypeError(f"{cls.kind}s are built-in and not stored")


@dataclass(frozen=True)
class Relation(Item):
    """An item with columns, which can be named in FROM."""

    columns: tuple[Column, ...]

    privileges = _READ_AND_WRITE
    is_indexable = True


@dataclass(frozen=True)
class DerivedRelation(Relation):
    """A relation whose rows are the result of a stored query.

    `query` is the SELECT with every relation named by id (`"$id"."u12"`), so that a rename does not change it.
    `uses` are the relations that the text names directly.
    """

    query: str
    uses: frozenset[ObjectId]

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return self.uses


@dataclass(frozen=True)
class Retained(Item):
    """An item with a `since`: its history can be read and held.

    `retain_ms` is RETAIN HISTORY in milliseconds: how much history stays readable without a hold. None is the server's
    default, 0 retains all history.
    """

    retain_ms: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Collection(Relation, Retained):
    """A relation whose rows are in the log, with its own frontiers."""


@dataclass(frozen=True)
class WrittenCollection(Collection):
    """A collection whose rows are written by commits. Its `upper` is that of all tables, with one exception.

    `has_upstream_times`: its changes have the timestamps of the upstream of its source, and its `upper` is its own.
    """

    @property
    def has_upstream_times(self) -> bool:
        return False


@dataclass(frozen=True)
class SourceOutput(WrittenCollection):
    """A collection that a source fills. Clients can only read it.

    `reference`: its name in the external system. `key`: columns of a unique key, as the external system has it.
    `output_names`: the names of the columns in the output, if a column list renamed them.
    """

    reference: str = ""
    key: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    relkind = "r"
    privileges = _SELECT

    def stored(self) -> dict[str, object]:
        return {
            "reference": self.reference,
            "key": self.key,
            "output_names": self.output_names,
            "retain_ms": self.retain_ms,
        }

    @classmethod
    def _restored(cls, row: StoredItem, **own: Any) -> Self:
        """The output with what `stored` of this class has, and the fields `own` of the kind."""
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            row.columns,
            reference=given["reference"],
            key=tuple(given["key"]),
            output_names=tuple(given["output_names"]),
            retain_ms=given["retain_ms"],
            **own,
        )


# -- the kinds ------------------------------------------------------------------------------------------------------


class OnCommit(StrEnum):
    """What happens to a temporary table when a transaction ends."""

    DELETE_ROWS = "delete rows"
    DROP = "drop"


@dataclass(frozen=True)
class Table(WrittenCollection):
    """A user's table. `keys` are its PRIMARY KEY and UNIQUE constraints, the primary key first.

    `numbering`: how its columns are stored; None if ALTER TABLE never changed which columns or types there are.
    `on_commit`: for temporary tables.
    """

    keys: tuple[Key, ...] = ()
    numbering: Numbering | None = field(default=None, kw_only=True)
    on_commit: OnCommit | None = field(default=None, kw_only=True)

    kind = "table"
    plural = "tables"
    relkind = "r"

    def stored(self) -> dict[str, object]:
        own: dict[str, object] = {"keys": [key.stored() for key in self.keys], "retain_ms": self.retain_ms}
        if self.numbering is not None:
            own["numbering"] = self.numbering.stored()
        if self.on_commit is not None:
            own["on_commit"] = self.on_commit
        return own

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        required = frozenset(column.name for column in row.columns if not column.nullable)
        keys = restored_keys(row.name, required, row.definition["keys"])
        numbering, on_commit = row.definition.get("numbering"), row.definition.get("on_commit")
        return cls(
            row.id,
            row.schema_id,
            row.name,
            row.columns,
            keys,
            retain_ms=row.definition.get("retain_ms"),
            numbering=None if numbering is None else Numbering.restored(numbering),
            on_commit=None if on_commit is None else OnCommit(on_commit),
        )

    def accepts_rows_of(self, before: Table) -> bool:
        """Whether rows that were computed for the definition `before` can be written, and plans for it be executed."""
        return self is before or (self.columns == before.columns and self.numbering == before.numbering)


@dataclass(frozen=True)
class View(DerivedRelation):
    """A view is replaced by its query where it is read."""

    kind = "view"
    plural = "views"
    relkind = "v"

    def stored(self) -> dict[str, object]:
        return {"query": self.query, "uses": sorted(self.uses)}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        query, uses = row.definition["query"], frozenset(row.definition["uses"])
        return cls(row.id, row.schema_id, row.name, row.columns, query, uses)


@dataclass(frozen=True)
class MaterializedView(DerivedRelation, Collection):
    """A view whose result is a collection."""

    kind = "materialized view"
    plural = "materialized views"
    relkind = "m"

    def stored(self) -> dict[str, object]:
        return {"query": self.query, "uses": sorted(self.uses), "retain_ms": self.retain_ms}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        query, uses = row.definition["query"], frozenset(row.definition["uses"])
        retain_ms = row.definition.get("retain_ms")
        return cls(row.id, row.schema_id, row.name, row.columns, query, uses, retain_ms=retain_ms)


@dataclass(frozen=True)
class Index(Retained):
    """`keys`: SQL expressions over the columns of `on`. The index has its own `since` (see `Frontiers`).

    `is_unique`: no two rows of the table `on` have the same key. `nulls_distinct`: as in `Key`.
    """

    on: ObjectId
    keys: tuple[str, ...]
    is_unique: bool = False
    nulls_distinct: bool = True

    kind = "index"
    plural = "indexes"
    relkind = "i"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset((self.on,))

    @property
    def part_of(self) -> ObjectId | None:
        return self.on

    def stored(self) -> dict[str, object]:
        unique = {"unique": True, "nulls_distinct": self.nulls_distinct} if self.is_unique else {}
        return {"on": self.on, "keys": self.keys, "retain_ms": self.retain_ms, **unique}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            given["on"],
            tuple(given["keys"]),
            given.get("unique", False),
            given.get("nulls_distinct", True),
            retain_ms=given.get("retain_ms"),
        )


@dataclass(frozen=True)
class Hold(Item):
    """A durable read hold on the items `on`, which never change. `max_lag_ms` bounds its lag.

    Its time and status are in `holds.py`.
    """

    on: tuple[ObjectId, ...]
    max_lag_ms: int

    kind = "hold"
    plural = "holds"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset(self.on)

    def stored(self) -> dict[str, object]:
        return {"on": self.on, "max_lag_ms": self.max_lag_ms}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        return cls(row.id, row.schema_id, row.name, tuple(row.definition["on"]), row.definition["max_lag_ms"])


@dataclass(frozen=True)
class NamedSecret(Item):
    """A value that options of connections refer to. No statement and no system table shows it."""

    value: Secret

    kind = "secret"
    plural = "secrets"
    privileges = _USAGE

    def stored(self) -> dict[str, object]:
        return {"value": self.value.reveal()}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        return cls(row.id, row.schema_id, row.name, Secret(row.definition["value"]))


@dataclass(frozen=True)
class Connection(Item):
    """The address of an external system. `system`: kafka, confluent schema registry or postgres.

    `options` are those with plain values, `secrets` those that name a secret, both by lower-case name.
    """

    system: str
    options: Mapping[str, str]
    secrets: Mapping[str, ObjectId]

    kind = "connection"
    plural = "connections"
    privileges = _USAGE

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset(self.secrets.values())

    def stored(self) -> dict[str, object]:
        return {"system": self.system, "options": dict(self.options), "secrets": dict(self.secrets)}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        definition = row.definition
        return cls(row.id, row.schema_id, row.name, definition["system"], definition["options"], definition["secrets"])


@dataclass(frozen=True)
class Source(SourceOutput):
    """A CREATE SOURCE. It has no columns if its outputs are collections of their own (`Subsource`, `SourceTable`).

    `system`: kafka, postgres, file or load generator. `given`: the column list, if it has types. `identity`:
    see `SourceDefinition`.
    """

    system: str = ""
    connection: ObjectId | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    format: Format | None = None
    tables: ForTables = field(default_factory=ForTables)
    given: tuple[Column, ...] = ()
    identity: str = ""

    kind = "source"
    plural = "sources"

    @property
    def has_upstream_times(self) -> bool:
        return self.options.get(TIMESTAMPS) == UPSTREAM and not self.tables

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        own = frozenset() if self.connection is None else frozenset((self.connection,))
        return own | (self.format.registries if self.format is not None else frozenset())

    def stored(self) -> dict[str, object]:
        return super().stored() | {
            "system": self.system,
            "connection": self.connection,
            "options": dict(self.options),
            "format": self.format.stored() if self.format is not None else None,
            "tables": self.tables.stored(),
            "given": [(c.name, c.type, c.nullable) for c in self.given],
            "identity": self.identity,
        }

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls._restored(
            row,
            system=given["system"],
            connection=given["connection"],
            options=given["options"],
            format=Format.restored(given["format"]) if given["format"] is not None else None,
            tables=ForTables.restored(given["tables"]),
            given=tuple(Column(*column) for column in given["given"]),
            identity=given["identity"],
        )


@dataclass(frozen=True)
class SourcePart(SourceOutput):
    """One of several outputs of a source."""

    source: ObjectId = field(kw_only=True)

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset((self.source,))


@dataclass(frozen=True)
class Subsource(SourcePart):
    """An output that CREATE SOURCE ... FOR TABLES or ALTER SOURCE ... ADD SUBSOURCE made. It is part of its source.

    `keeps_times`: its changes have the timestamps of the upstream, as the source's options say.
    """

    keeps_times: bool = False

    kind = "subsource"
    named_as = "source"
    plural = "sources"

    @property
    def part_of(self) -> ObjectId | None:
        return self.source

    @property
    def has_upstream_times(self) -> bool:
        return self.keeps_times

    def stored(self) -> dict[str, object]:
        return super().stored() | {"source": self.source, "keeps times": self.keeps_times}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        definition = row.definition
        return cls._restored(row, source=definition["source"], keeps_times=definition.get("keeps times", False))


@dataclass(frozen=True)
class SourceTable(SourcePart):
    """A CREATE TABLE ... FROM SOURCE. `format` None: that of the source."""

    format: Format | None = None

    kind = "source table"
    named_as = "table"
    plural = "tables"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return frozenset((self.source,)) | (self.format.registries if self.format is not None else frozenset())

    def stored(self) -> dict[str, object]:
        format = self.format.stored() if self.format is not None else None
        return super().stored() | {"source": self.source, "format": format}

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        format = row.definition["format"]
        format = Format.restored(format) if format is not None else None
        return cls._restored(row, source=row.definition["source"], format=format)


@dataclass(frozen=True)
class Sink(Item):
    """A CREATE SINK: writes the changes of the collection `on` to an external system.

    `system`: file, postgres or kafka. `format` None: the external system has columns. `key`: the columns of KEY.
    `identity`: unique among all sinks of all servers, for what a sink stores in the external system. Its frontier is in
    `source_state.py`.
    """

    on: ObjectId
    system: str
    options: Mapping[str, str]
    format: Format | None
    with_snapshot: bool = True
    connection: ObjectId | None = None
    key: tuple[str, ...] = ()
    identity: str = ""

    kind = "sink"
    plural = "sinks"

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        own = frozenset((self.on,)) if self.connection is None else frozenset((self.on, self.connection))
        return own | (self.format.registries if self.format is not None else frozenset())

    def stored(self) -> dict[str, object]:
        return {
            "on": self.on,
            "system": self.system,
            "options": dict(self.options),
            "format": self.format.stored() if self.format is not None else None,
            "with_snapshot": self.with_snapshot,
            "connection": self.connection,
            "key": list(self.key),
            "identity": self.identity,
        }

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        given = row.definition
        return cls(
            row.id,
            row.schema_id,
            row.name,
            on=given["on"],
            system=given["system"],
            options=given["options"],
            format=Format.restored(given["format"]) if given["format"] is not None else None,
            with_snapshot=given["with_snapshot"],
            connection=given["connection"],
            key=tuple(given["key"]),
            identity=given["identity"],
        )


@dataclass(frozen=True)
class SystemTable(Relation):
    """A built-in relation, which is not stored. Its rows are computed from the server's memory when it is read."""

    kind = "system table"
    plural = "tables"
    relkind = "r"
    is_indexable = False

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return _SELECT


KINDS: Mapping[str, type[Item]] = {
    kind.kind: kind
    for kind in (
        Table,
        View,
        MaterializedView,
        Index,
        Hold,
        NamedSecret,
        Connection,
        Source,
        Subsource,
        SourceTable,
        Sink,
        SystemTable,
    )
}
"""The class of each kind of item."""


def object_type(kind: str) -> str:
    """The kind as system tables name it, such as `materialized-view`."""
    return kind.replace(" ", "-")


def with_article(kind: str) -> str:
    """The kind with its article, such as `an index`."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def applicable_privileges(kind: str) -> frozenset[Privilege]:
    """The privileges that apply to a kind of object: the meaning of ALL."""
    classes: Mapping[str, type[CatalogObject]] = {**KINDS, **{c.kind: c for c in (Database, Schema, Cluster)}}
    return classes[kind].privileges
