# Keys that are NULL, and keys with fields that are NULL.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

# ENVELOPE UPSERT: a value without a key is an error, until a message has neither.
$ kafka-create-topic topic=nulls

$ kafka-ingest topic=nulls format=bytes key-format=bytes
a:1
:2

> CREATE SOURCE nulls FROM KAFKA CONNECTION k (TOPIC 'testdrive-nulls-${testdrive.seed}')
  KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT

! SELECT * FROM nulls
contains:Envelope error: Upsert: Null key: record with NULL key in UPSERT source
detail:Topic "testdrive-nulls-${testdrive.seed}", partition 0, offset 1.

# Messages of other keys do not remove it.
$ kafka-ingest topic=nulls format=bytes key-format=bytes
a:3
b:4

! SELECT * FROM nulls
contains:Envelope error: Upsert: Null key

$ kafka-ingest topic=nulls format=bytes key-format=bytes
:

> SELECT key, text FROM nulls
a 3
b 4

# A message without key and value is nothing.
$ kafka-ingest topic=nulls format=bytes key-format=bytes
:
b:

> SELECT key, text FROM nulls
a 3

# ENVELOPE NONE: a key may be NULL. A message with a key and without a value is an error, and one with neither is nothing.
$ kafka-create-topic topic=flat

$ kafka-ingest topic=flat format=bytes key-format=bytes
:1
k:2
:

> CREATE SOURCE flat FROM KAFKA CONNECTION k (TOPIC 'testdrive-flat-${testdrive.seed}')
  KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY ENVELOPE NONE

> SELECT key, text FROM flat
<null> 1
k 2

$ kafka-ingest topic=flat format=bytes key-format=bytes
k:

! SELECT key, text FROM flat
contains:Envelope error: Flat: Value not present for message
detail:Topic "testdrive-flat-${testdrive.seed}", partition 0, offset 3.

# NULL in a field of a key equals NULL.
$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": ["null", "string"]}]}
  schema={"type": "record", "name": "Value", "fields": [{"name": "v", "type": "string"}]}

$ kafka-create-topic topic=composite

$ kafka-ingest topic=composite format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"a": null, "b": null} {"v": "neither"}
{"a": {"int": 1}, "b": null} {"v": "first"}
{"a": null, "b": {"string": "x"}} {"v": "second"}
{"a": {"int": 1}, "b": null} {"v": "changed"}

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

> CREATE SOURCE composite FROM KAFKA CONNECTION k (TOPIC 'testdrive-composite-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE UPSERT

> SELECT a, b, v FROM composite
<null> <null> neither
1 <null> changed
<null> x second

$ kafka-ingest topic=composite format=avro schema=${schema} key-format=avro key-schema=${key-schema}
{"a": null, "b": null}
{"a": null, "b": {"string": "x"}} {"v": "changed, too"}

> SELECT a, b, v FROM composite
1 <null> changed
<null> x "changed, too"
