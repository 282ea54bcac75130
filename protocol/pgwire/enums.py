"""Enumerated types: their labels, in order, and the positions that represent them.

A value is represented by its position, a string. The order of positions, by bytes, is that in which CREATE TYPE
declares the labels. A position never changes: neither RENAME VALUE nor ADD VALUE, also with BEFORE or AFTER, changes
stored rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from protocol.pgwire.errors import PgError, SqlState

PREFIX = "enum "
"""The start of the spelling of each enumerated type. No type of PostgreSQL begins with it."""


@dataclass(frozen=True)
class Enum:
    """An enumerated type. `labels` and `positions` are parallel and in order. `display`: as messages name the type."""

    id: str
    oid: int
    array_oid: int
    display: str
    labels: tuple[str, ...]
    positions: tuple[str, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.id, self.display, self.labels, self.positions))

    def __reduce__(self) -> tuple[Callable[[str], Enum], tuple[str]]:
        return parse_enum, (str(self),)

    def __str__(self) -> str:
        """The spelling that the catalog stores and that `parse_enum` parses. It never ends in `[]`."""
        pairs = list(zip(self.positions, self.labels, strict=True))
        fields = [self.id, self.oid, self.array_oid, self.display, pairs]
        return PREFIX + json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def position_of(self) -> Mapping[str, str]:
        """The position of each label."""
        return dict(zip(self.labels, self.positions, strict=True))

    @cached_property
    def label_of(self) -> Mapping[str, str]:
        """The label at each position."""
        return dict(zip(self.positions, self.labels, strict=True))

    @cached_property
    def _arrays(self) -> tuple[pa.Array, pa.Array]:
        return pa.array(self.labels, pa.string()), pa.array(self.positions, pa.string())

    def position(self, label: str) -> str:
        """The position of a label. PgError 22P02 if the type does not have it."""
        found = self.position_of.get(label)
        if found is None:
            message = f'invalid input value for enum {self.display}: "{label}"'
            raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
        return found

    def label_column(self, positions: pa.Array) -> pa.Array:
        """The labels of a column of positions; NULL stays NULL. LookupError for a position that the type lacks."""
        labels, known = self._arrays
        found = pc.index_in(positions, value_set=known)
        if found.null_count != positions.null_count:
            raise LookupError(f"a value of type {self.display} has no label")
        return labels.take(found)

    def position_column(self, labels: pa.Array) -> pa.Array | None:
        """The positions of a column of labels; None if the type does not have one of them."""
        known, positions = self._arrays
        found = pc.index_in(labels, value_set=known)
        return positions.take(found) if found.null_count == labels.null_count else None


@lru_cache(16)  # the columns of a relation often have the same type
def without_name(spelling: str) -> str:
    """The spelling of a type; of an enumerated type without its name, which is not part of its values."""
    if not spelling.startswith(PREFIX):
        return spelling
    enum = parse_enum(spelling.removesuffix("[]"))
    return f"{replace(enum, display='')}{'[]' if spelling.endswith('[]') else ''}"


def parse_enum(spelling: str) -> Enum:
    """The type with this spelling in the catalog."""
    id, oid, array_oid, display, pairs = json.loads(spelling.removeprefix(PREFIX))
    positions, labels = tuple(p for p, _ in pairs), tuple(label for _, label in pairs)
    return Enum(id, oid, array_oid, display, labels, positions)
