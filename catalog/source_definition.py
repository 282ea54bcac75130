"""What a CREATE SOURCE statement says, as plain values: stored with the source, and given to its kind of source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from catalog.ids import ObjectId

_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


def joined_reference(parts: Sequence[str]) -> str:
    """A reference such as `public.orders`. A part with a dot is quoted, except a single one: a topic may have dots."""
    if len(parts) == 1:
        return parts[0]
    return ".".join('"' + part.replace('"', '""') + '"' if set(part) & {".", '"'} else part for part in parts)


def reference_parts(reference: str) -> tuple[str, ...]:
    """The inverse of `joined_reference` for several parts."""
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(reference))


class Envelope(StrEnum):
    """How a source's messages change its collection."""

    NONE = "none"
    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium upsert"
    DEBEZIUM = "debezium"
    MATERIALIZE = "materialize"


@dataclass(frozen=True, slots=True)
class Encoding:
    """FORMAT name ...: how the key or the value of a message is encoded.

    `name`: avro, json, text, bytes or csv. `registry`: the connection of USING CONFLUENT SCHEMA REGISTRY CONNECTION.
    `schema`: the text of USING SCHEMA. `options`: other options by lower-case name. CSV has `columns` (the number),
    `header` (`true`: the first line names the columns) and `delimited by`; Avro has `confluent wire format` (`false`).
    """

    name: str
    registry: ObjectId | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Include:
    """INCLUDE what [AS name]: an additional column.

    `what`: key, partition, offset, timestamp, headers or header. `header`: the key of INCLUDE HEADER; `is_bytes`: its
    column has the type bytea.
    """

    what: str
    name: str | None = None
    header: str | None = None
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """FORMAT or KEY FORMAT and VALUE FORMAT, INCLUDE and ENVELOPE of a source or of a table from a source.

    `key` is None after a bare FORMAT, `value` if there is no FORMAT at all. `inline_errors`: the column of VALUE
    DECODING ERRORS = (INLINE AS name), or None.
    """

    value: Encoding | None = None
    key: Encoding | None = None
    include: tuple[Include, ...] = ()
    envelope: Envelope = Envelope.NONE
    inline_errors: str | None = None

    @property
    def registries(self) -> frozenset[ObjectId]:
        """The connections that the encodings name."""
        encodings = (e for e in (self.key, self.value) if e is not None)
        return frozenset(e.registry for e in encodings if e.registry is not None)

    def stored(self) -> dict[str, Any]:
        """The format as JSON values."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        """The inverse of `stored`."""
        value, key = (Encoding(**stored[n]) if stored[n] is not None else None for n in ("value", "key"))
        include = tuple(Include(**column) for column in stored["include"])
        return cls(value, key, include, Envelope(stored["envelope"]), stored["inline_errors"])


@dataclass(frozen=True, slots=True)
class ForTables:
    """FOR ALL TABLES, FOR SCHEMAS (...) or FOR TABLES (reference AS name, ...). Without values: none of these.

    `tables`: references as written, for example `public.orders`, with the name of AS or None.
    """

    all: bool = False
    schemas: tuple[str, ...] = ()
    tables: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return self.all or bool(self.schemas) or bool(self.tables)

    def stored(self) -> dict[str, Any]:
        """The clause as JSON values."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        """The inverse of `stored`."""
        return cls(stored["all"], tuple(stored["schemas"]), tuple((r, name) for r, name in stored["tables"]))
