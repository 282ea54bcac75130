"""Sources and their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from catalog.ids import ObjectId
from catalog.objects.catalog_object import SELECT_ONLY, StoredItem
from catalog.objects.columns import Column
from catalog.objects.relations import WrittenCollection
from catalog.source_definition import Format, ForTables

TIMESTAMPS, UPSTREAM = "timestamps", "upstream"  # an option of sources, and its value


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
    privileges = SELECT_ONLY

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
