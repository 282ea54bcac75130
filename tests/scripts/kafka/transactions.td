# TRANSACTION TOPIC: the changes of a transaction appear at one timestamp, when its END and all its events have arrived.

$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}

$ set schema
{
  "type": "record", "name": "Envelope", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
      {"name": "id", "type": "int"}, {"name": "v", "type": ["null", "string"]}]}]},
    {"name": "after", "type": ["null", "Value"]},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
      {"name": "snapshot", "type": ["null", "string"]},
      {"name": "sequence", "type": ["null", "string"]},
      {"name": "lsn", "type": ["null", "long"]}]}},
    {"name": "op", "type": "string"},
    {"name": "transaction", "type": ["null", {"type": "record", "name": "block", "fields": [
      {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"}, {"name": "data_collection_order", "type": "long"}]}]}
  ]
}

$ set transaction-schema
{
  "type": "record", "name": "TransactionMetadataValue", "fields": [
    {"name": "status", "type": "string"},
    {"name": "id", "type": "string"},
    {"name": "event_count", "type": ["null", "long"]},
    {"name": "data_collections", "type": ["null", {"type": "array", "items": {"type": "record", "name": "collection", "fields": [
      {"name": "data_collection", "type": "string"}, {"name": "event_count", "type": "long"}]}}]}
  ]
}

$ kafka-create-topic topic=a

$ kafka-create-topic topic=b

$ kafka-create-topic topic=transactions

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

# A first transaction, so that the schemas exist.
$ kafka-ingest topic=a format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": null, "sequence": {"string": "[null, \"100\"]"}, "lsn": {"long": 100}}, "op": "c", "transaction": {"block": {"id": "1:110", "total_order": 1, "data_collection_order": 1}}}

$ kafka-ingest topic=b format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "uno"}}}, "source": {"snapshot": null, "sequence": {"string": "[null, \"101\"]"}, "lsn": {"long": 101}}, "op": "c", "transaction": {"block": {"id": "1:110", "total_order": 2, "data_collection_order": 1}}}

$ kafka-ingest topic=transactions format=avro schema=${transaction-schema}
{"status": "BEGIN", "id": "1:110", "event_count": null, "data_collections": null}
{"status": "END", "id": "1:110", "event_count": {"long": 2}, "data_collections": {"array": [{"data_collection": "testdrive-a-${testdrive.seed}", "event_count": 1}, {"data_collection": "testdrive-b-${testdrive.seed}", "event_count": 1}]}}

> CREATE SOURCE bank FROM KAFKA CONNECTION k (TRANSACTION TOPIC 'testdrive-transactions-${testdrive.seed}')

> BEGIN

> CREATE TABLE a FROM SOURCE bank (REFERENCE "testdrive-a-${testdrive.seed}")
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM

> CREATE TABLE b FROM SOURCE bank (REFERENCE "testdrive-b-${testdrive.seed}")
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT

> COMMIT

> SELECT a.v, b.v FROM a JOIN b ON a.id = b.id
one uno

> CREATE SOURCE alone FROM KAFKA CONNECTION k (TOPIC 'testdrive-a-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM

# Half of a transaction: a source without TRANSACTION TOPIC has it, the tables do not.
$ kafka-ingest topic=transactions format=avro schema=${transaction-schema}
{"status": "BEGIN", "id": "2:210", "event_count": null, "data_collections": null}

$ kafka-ingest topic=a format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": {"Value": {"id": 1, "v": {"string": "one"}}}, "after": {"Value": {"id": 1, "v": {"string": "first"}}}, "source": {"snapshot": null, "sequence": {"string": "[\"110\", \"200\"]"}, "lsn": {"long": 200}}, "op": "u", "transaction": {"block": {"id": "2:210", "total_order": 1, "data_collection_order": 1}}}

> SELECT v FROM alone
first

> SELECT a.v, b.v FROM a JOIN b ON a.id = b.id
one uno

$ kafka-ingest topic=b format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": {"Value": {"id": 1, "v": {"string": "uno"}}}, "after": {"Value": {"id": 1, "v": {"string": "primo"}}}, "source": {"snapshot": null, "sequence": {"string": "[\"110\", \"201\"]"}, "lsn": {"long": 201}}, "op": "u", "transaction": {"block": {"id": "2:210", "total_order": 2, "data_collection_order": 1}}}

> SELECT a.v, b.v FROM a JOIN b ON a.id = b.id
one uno

> BEGIN

> DECLARE changes CURSOR FOR SUBSCRIBE (SELECT a.id, a.v, b.v FROM a JOIN b ON a.id = b.id) WITH (SNAPSHOT = false)

$ kafka-ingest topic=transactions format=avro schema=${transaction-schema}
{"status": "END", "id": "2:210", "event_count": {"long": 2}, "data_collections": {"array": [{"data_collection": "testdrive-a-${testdrive.seed}", "event_count": 1}, {"data_collection": "testdrive-b-${testdrive.seed}", "event_count": 1}]}}

# A subscriber sees the change of both tables, and nothing between.
$ set-regex match="\d{13}" replacement=<time>

> FETCH 2 changes WITH (timeout = '30s')
<time> -1 1 one uno
<time> 1 1 first primo

> COMMIT

> SELECT a.v, b.v FROM a JOIN b ON a.id = b.id
first primo

# Repeated events and a repeated END have no effect.
$ kafka-ingest topic=a format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": {"Value": {"id": 1, "v": {"string": "one"}}}, "after": {"Value": {"id": 1, "v": {"string": "first"}}}, "source": {"snapshot": null, "sequence": {"string": "[\"110\", \"200\"]"}, "lsn": {"long": 200}}, "op": "u", "transaction": {"block": {"id": "2:210", "total_order": 1, "data_collection_order": 1}}}
{"id": 2} {"before": null, "after": {"Value": {"id": 2, "v": null}}, "source": {"snapshot": null, "sequence": {"string": "[\"210\", \"300\"]"}, "lsn": {"long": 300}}, "op": "c", "transaction": {"block": {"id": "3:310", "total_order": 1, "data_collection_order": 1}}}

$ kafka-ingest topic=transactions format=avro schema=${transaction-schema}
{"status": "END", "id": "2:210", "event_count": {"long": 2}, "data_collections": {"array": [{"data_collection": "testdrive-a-${testdrive.seed}", "event_count": 1}, {"data_collection": "testdrive-b-${testdrive.seed}", "event_count": 1}]}}
{"status": "BEGIN", "id": "3:310", "event_count": null, "data_collections": null}
{"status": "END", "id": "3:310", "event_count": {"long": 1}, "data_collections": {"array": [{"data_collection": "testdrive-a-${testdrive.seed}", "event_count": 1}]}}

> SELECT id, v FROM a
1 first
2 <null>

> SELECT id, v FROM b
1 primo

# Tables of such a source need messages with transactions.
! CREATE TABLE c FROM SOURCE bank (REFERENCE "testdrive-a-${testdrive.seed}") FORMAT TEXT
contains:TRANSACTION TOPIC

# The messages of a topic are merged for one table.
! CREATE TABLE c FROM SOURCE bank (REFERENCE "testdrive-a-${testdrive.seed}")
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT
contains:a second table of topic
