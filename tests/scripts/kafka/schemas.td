# Schemas: those of messages are registered, or published before; messages without an id have the schema of the source.

$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
  schema={"type": "record", "name": "Value", "fields": [{"name": "v", "type": "string"}]}
  wider={"type": "record", "name": "Value", "fields": [{"name": "v", "type": "string"}, {"name": "w", "type": ["null", "long"], "default": null}]}

$ kafka-create-topic topic=schemas

# The columns are those of the latest version of the subject.
$ schema-registry-publish subject=testdrive-schemas-${testdrive.seed}-value schema-type=avro
${schema}

$ schema-registry-publish subject=testdrive-schemas-${testdrive.seed}-value schema-type=avro
${wider}

$ schema-registry-publish subject=testdrive-schemas-${testdrive.seed}-key schema-type=avro
${key-schema}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

> CREATE SOURCE schemas FROM KAFKA CONNECTION k (TOPIC 'testdrive-schemas-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE UPSERT

# A message is decoded with the schema that it names, also one of another subject.
$ kafka-ingest topic=schemas format=avro schema=${schema} key-format=avro key-schema=${key-schema}
  set-schema-id-var=value-id set-key-schema-id-var=key-id
{"id": 1} {"v": "narrow"}

$ kafka-ingest topic=schemas format=avro schema=${wider} key-format=avro key-schema=${key-schema}
  schema-id-subject=another
{"id": 2} {"v": "wide", "w": {"long": 7}}

> SELECT id, v, w FROM schemas
1 narrow <null>
2 wide 7

$ kafka-verify-data topic=schemas key-format=avro value-format=avro sort-messages=true
{"id": 2} {"v": "wide", "w": {"long": 7}}
{"id": 1} {"v": "narrow"}

$ kafka-verify-data topic=schemas format=avro key=false partial-search=2
{"v": "wide", "w": {"long": 7}}

# The variables have the ids.
$ kafka-create-topic topic=ids

$ kafka-ingest topic=ids format=bytes
key ${key-id}, value ${value-id}

$ schema-registry-publish subject=again schema-type=avro
${schema}

$ kafka-create-topic topic=again

$ kafka-ingest topic=again format=avro schema=${schema} schema-id-subject=again set-schema-id-var=again-id
{"v": "the same schema has the same id"}

$ kafka-ingest topic=ids format=bytes
key ${key-id}, value ${again-id}

> CREATE SOURCE ids FROM KAFKA CONNECTION k (TOPIC 'testdrive-ids-${testdrive.seed}') FORMAT TEXT

> SELECT count(*), count(DISTINCT text) FROM ids WHERE text LIKE 'key %, value %'
2 1

# Messages without an id. The key is bytes, and its terminator occurs in the value.
$ kafka-create-topic topic=bare

$ kafka-ingest topic=bare format=avro schema=${schema} confluent-wire-format=false key-format=bytes key-terminator=|
a|{"v": "x|y"}
b|

> CREATE SOURCE bare FROM KAFKA CONNECTION k (TOPIC 'testdrive-bare-${testdrive.seed}')
  KEY FORMAT TEXT
  VALUE FORMAT AVRO USING SCHEMA '${schema}' (CONFLUENT WIRE FORMAT = false)
  INCLUDE KEY AS k ENVELOPE UPSERT

> SELECT k, v FROM bare
a x|y

# A value of bytes after a key in Avro is the rest of the line.
$ kafka-create-topic topic=rest

$ kafka-ingest topic=rest format=bytes key-format=avro key-schema=${key-schema} confluent-wire-format=false
{"id": 1} the rest {"of": "the line"}

> CREATE SOURCE rest FROM KAFKA CONNECTION k (TOPIC 'testdrive-rest-${testdrive.seed}')
  KEY FORMAT AVRO USING SCHEMA '${key-schema}' (CONFLUENT WIRE FORMAT = false) VALUE FORMAT TEXT ENVELOPE UPSERT

> SELECT id, ltrim(text) FROM rest
1 "the rest {\"of\": \"the line\"}"

# A schema that refers to another one.
$ set line-schema={"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
  order-schema={"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}

$ schema-registry-publish subject=line schema-type=avro
${line-schema}

$ schema-registry-publish subject=order schema-type=avro references=line
${order-schema}

$ kafka-create-topic topic=references

$ kafka-ingest topic=references format=avro schema=${order-schema} references=line
  key-format=avro key-schema=${order-schema} key-references=line
{"line": {"n": 1}} {"line": {"n": 2}}

$ kafka-verify-data topic=references format=avro
{"line": {"n": 1}} {"line": {"n": 2}}
