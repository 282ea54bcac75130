"""The rows of pg_sequence, and the results of pg_get_serial_sequence."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catalog.objects.sequences import Sequence
from protocol.pgwire.types import parse_type
from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible
from server.sql.grammar.lexer import quote_identifier

SERIALS = pa.schema([*((name, pa.string()) for name in ("relation", "column", "sequence")), ("oid", pa.uint32())])
LAST_VALUES = pa.schema([("oid", pa.uint32()), ("last_value", pa.int64())])


def sequences_of(visible: Visible) -> Iterator[Sequence]:
    """The sequences of the visible schemas."""
    return (item for item in visible.items if isinstance(item, Sequence))


def sequences(visible: Visible) -> Iterator[Row]:
    """pg_sequence"""
    for sequence in sequences_of(visible):
        yield {
            "seqrelid": oids.oid_of(sequence.id),
            "seqtypid": parse_type(sequence.type).oid,
            "seqstart": sequence.start,
            "seqincrement": sequence.increment,
            "seqmax": sequence.maximum,
            "seqmin": sequence.minimum,
            "seqcache": sequence.cache,
            "seqcycle": sequence.cycle,
        }


def serials(visible: Visible) -> Iterator[Row]:
    """tw_serials: the results of pg_get_serial_sequence, by the texts of a relation's name and the column."""
    schemas = {schema.id: schema.name for schema in visible.schemas}
    for sequence in sequences_of(visible):
        if sequence.owner_table is None:
            continue
        table = visible.state.items[sequence.owner_table]
        schema = schemas[table.schema_id]
        names = {quote_identifier(table.name), f'"{table.name}"'}
        texts = {f"{prefix}.{name}" for prefix in (quote_identifier(schema), f'"{schema}"') for name in names}
        if visible.named((table.name,)) == oids.oid_of(table.id):
            texts |= names
        full = f"{quote_identifier(schemas[sequence.schema_id])}.{quote_identifier(sequence.name)}"
        for text in sorted(texts):
            oid = oids.oid_of(sequence.id)
            yield {"relation": text, "column": sequence.owner_column, "sequence": full, "oid": oid}
