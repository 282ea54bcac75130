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

SERIALS = pa.schema(
    [("relation", pa.uint32()), ("column", pa.string()), ("sequence", pa.string()), ("oid", pa.uint32())]
)
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
    """tw_serials: the results of pg_get_serial_sequence, by the relation and the column."""
    schemas = {schema.id: schema.name for schema in visible.schemas}
    for sequence in sequences_of(visible):
        if sequence.owner_table is not None:
            yield {
                "relation": oids.oid_of(sequence.owner_table),
                "column": sequence.owner_column,
                "sequence": f"{quote_identifier(schemas[sequence.schema_id])}.{quote_identifier(sequence.name)}",
                "oid": oids.oid_of(sequence.id),
            }
