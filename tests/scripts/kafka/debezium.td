# ENVELOPE DEBEZIUM: a change retracts `before` and adds `after`; repeated changes are dropped by their positions.

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

$ kafka-create-topic topic=debezium

$ kafka-ingest topic=debezium format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": {"string": "true"}, "sequence": {"string": "[null, \"10\"]"}, "lsn": {"long": 10}}, "op": "r"}
{"id": 2} {"before": null, "after": {"Value": {"id": 2, "v": {"string": "two"}}}, "source": {"snapshot": {"string": "last"}, "sequence": {"string": "[null, \"10\"]"}, "lsn": {"long": 10}}, "op": "r"}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

> CREATE SOURCE classic FROM KAFKA CONNECTION k (TOPIC 'testdrive-debezium-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM

> CREATE SOURCE keyed FROM KAFKA CONNECTION k (TOPIC 'testdrive-debezium-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT

> SELECT id, v FROM classic
1 one
2 two

> SELECT id, v FROM keyed
1 one
2 two

# An update twice, an insert, and a delete with its tombstone.
$ kafka-ingest topic=debezium format=avro schema=${schema} key-format=avro key-schema=${key-schema} repeat=2
{"id": 1} {"before": {"Value": {"id": 1, "v": {"string": "one"}}}, "after": {"Value": {"id": 1, "v": {"string": "first"}}}, "source": {"snapshot": null, "sequence": {"string": "[\"10\", \"20\"]"}, "lsn": {"long": 20}}, "op": "u"}
{"id": 3} {"before": null, "after": {"Value": {"id": 3, "v": null}}, "source": {"snapshot": null, "sequence": {"string": "[\"10\", \"30\"]"}, "lsn": {"long": 30}}, "op": "c"}
{"id": 2} {"before": {"Value": {"id": 2, "v": {"string": "two"}}}, "after": null, "source": {"snapshot": null, "sequence": {"string": "[\"10\", \"40\"]"}, "lsn": {"long": 40}}, "op": "d"}
{"id": 2}

> SELECT id, v FROM classic
1 first
3 <null>

> SELECT id, v FROM keyed
1 first
3 <null>
