# What ENVELOPE DEBEZIUM refuses, each with what to do instead. DEBEZIUM UPSERT accepts most of it.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
  row={"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": ["null", "string"]}]}
  postgres={"type": "record", "name": "Source", "fields": [{"name": "snapshot", "type": ["null", "string"]}, {"name": "sequence", "type": ["null", "string"]}, {"name": "lsn", "type": ["null", "long"]}]}
  sqlserver={"type": "record", "name": "Source", "fields": [{"name": "snapshot", "type": ["null", "string"]}, {"name": "change_lsn", "type": ["null", "string"]}, {"name": "event_serial_no", "type": ["null", "long"]}]}
  other={"type": "record", "name": "Source", "fields": [{"name": "snapshot", "type": ["null", "string"]}, {"name": "scn", "type": "long"}]}

# No field `before`.
$ set schema={"type": "record", "name": "Envelope", "fields": [{"name": "after", "type": ["null", ${row}]}, {"name": "source", "type": ${postgres}}, {"name": "op", "type": "string"}]}

$ kafka-create-topic topic=without

$ kafka-ingest topic=without format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": null, "sequence": {"string": "[null, \"10\"]"}, "lsn": {"long": 10}}, "op": "c"}

! CREATE SOURCE without FROM KAFKA CONNECTION k (TOPIC 'testdrive-without-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM
contains:'before' column missing from debezium input
hint:DEBEZIUM UPSERT

> CREATE SOURCE without FROM KAFKA CONNECTION k (TOPIC 'testdrive-without-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT

> SELECT id, v FROM without
1 one

# SQL Server: several changes can have one position.
$ set schema={"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", ${row}]}, {"name": "after", "type": ["null", "Value"]}, {"name": "source", "type": ${sqlserver}}, {"name": "op", "type": "string"}]}

$ kafka-create-topic topic=sqlserver

$ kafka-ingest topic=sqlserver format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": null, "change_lsn": {"string": "00000025:00000448:0003"}, "event_serial_no": {"long": 1}}, "op": "c"}

! CREATE SOURCE sqlserver FROM KAFKA CONNECTION k (TOPIC 'testdrive-sqlserver-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM
contains:ENVELOPE DEBEZIUM does not support SQL Server
detail:Several changes of SQL Server can have the same position
hint:Use ENVELOPE DEBEZIUM UPSERT.

> CREATE SOURCE sqlserver FROM KAFKA CONNECTION k (TOPIC 'testdrive-sqlserver-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM UPSERT

> SELECT id, v FROM sqlserver
1 one

# Another database.
$ set schema={"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", ${row}]}, {"name": "after", "type": ["null", "Value"]}, {"name": "source", "type": ${other}}, {"name": "op", "type": "string"}]}

$ kafka-create-topic topic=other

$ kafka-ingest topic=other format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": null}}, "source": {"snapshot": null, "scn": 1}, "op": "c"}

! CREATE SOURCE other FROM KAFKA CONNECTION k (TOPIC 'testdrive-other-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM
contains:unknown type of upstream database
hint:Use ENVELOPE DEBEZIUM UPSERT.

# An update without the old row, under REPLICA IDENTITY DEFAULT, ends the source.
$ set schema={"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", ${row}]}, {"name": "after", "type": ["null", "Value"]}, {"name": "source", "type": ${postgres}}, {"name": "op", "type": "string"}]}

$ kafka-create-topic topic=identity

$ kafka-ingest topic=identity format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "one"}}}, "source": {"snapshot": null, "sequence": {"string": "[null, \"10\"]"}, "lsn": {"long": 10}}, "op": "c"}

> CREATE SOURCE identity FROM KAFKA CONNECTION k (TOPIC 'testdrive-identity-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE DEBEZIUM

> SELECT id, v FROM identity
1 one

$ kafka-ingest topic=identity format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"id": 1} {"before": null, "after": {"Value": {"id": 1, "v": {"string": "two"}}}, "source": {"snapshot": null, "sequence": {"string": "[\"10\", \"20\"]"}, "lsn": {"long": 20}}, "op": "u"}

> SELECT status, error, hint LIKE '%REPLICA IDENTITY FULL%' FROM mz_internal.mz_source_statuses WHERE name = 'identity'
failed "topic \"testdrive-identity-${testdrive.seed}\" has a change without the old row" true

> SELECT id, v FROM identity
1 one
