# ENVELOPE DEBEZIUM refuses a compacted topic, which lacks changes. DEBEZIUM UPSERT accepts it.

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
    {"name": "op", "type": "string"}
  ]
}

$ kafka-create-topic topic=compacted compaction=true

$ kafka-ingest topic=compacted format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": null, "sequence": {"string": "[null, \"10\"]"}, "lsn": {"long": 10}}, "op": "c"}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

! CREATE SOURCE classic FROM KAFKA CONNECTION k (TOPIC 'testdrive-compacted-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM
contains:topic "testdrive-compacted-${testdrive.seed}" is compacted, so changes are missing that ENVELOPE DEBEZIUM needs
hint:or use ENVELOPE DEBEZIUM UPSERT

> CREATE SOURCE keyed FROM KAFKA CONNECTION k (TOPIC 'testdrive-compacted-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT

> SELECT id, v FROM keyed
1 one
