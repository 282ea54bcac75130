"""The formats of the messages by which the topics of a database are merged: events, and ends of transactions."""

from __future__ import annotations

from catalog.source_definition import Envelope, Format
from protocol.avro.decoder import Wanted
from protocol.avro.schema import Record, parse_schema, without_null
from server.ingest.kafka.avro_format import AvroFormat
from server.ingest.kafka.layouts.debezium import OP, SOURCE, field_of, single_field, source_of
from server.ingest.kafka.layouts.layout import Schemas
from server.ingest.kafka.layouts.refusals import unsupported
from server.ingest.kafka.positions import Upstream
from server.ingest.kafka.registry import SchemaRegistry

TRANSACTION = "transaction"
NUMBER = "data_collection_order"  # of a message in its transaction and table
_TRANSACTIONS = "Set provide.transaction.metadata of Debezium's connector to true."


def events_of(schemas: Schemas, format: Format, registry: SchemaRegistry | None) -> tuple[Upstream, AvroFormat]:
    """The database of a topic, and the format of the positions and transactions of its messages.

    PgError if the envelope is not Debezium's, or its messages do not name their transactions.
    """
    if format.envelope not in (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT) or schemas.value is None:
        raise unsupported(
            "option TRANSACTION TOPIC requires an envelope of DEBEZIUM and FORMAT AVRO",
            hint="Use ENVELOPE DEBEZIUM and FORMAT AVRO, or omit TRANSACTION TOPIC.",
        )
    envelope = parse_schema(schemas.value)
    assert isinstance(envelope, Record)
    branches, _ = without_null(field_of(envelope, TRANSACTION).type)
    if len(branches) != 1 or not isinstance(branches[0], Record):
        raise unsupported("'transaction' column must be of type record", hint=_TRANSACTIONS)
    origin, source = source_of(envelope)
    transaction = Wanted({name: single_field(branches[0], name) for name in ("id", NUMBER)}, (TRANSACTION,), True)
    wanted = Wanted({OP: single_field(envelope, OP), SOURCE: source, TRANSACTION: transaction})
    return origin, AvroFormat(wanted, registry, envelope)


def ends_of(schema: str, registry: SchemaRegistry) -> AvroFormat:
    """The format of a topic of transaction metadata. PgError if the schema is another one."""
    record = parse_schema(schema)
    names = ("status", "id", "data_collections")
    if not isinstance(record, Record) or any(record.field(name) is None for name in names):
        raise unsupported(
            "the topic of option TRANSACTION TOPIC has no transaction metadata of Debezium", hint=_TRANSACTIONS
        )
    return AvroFormat(Wanted({name: single_field(record, name) for name in names}), registry, record)
