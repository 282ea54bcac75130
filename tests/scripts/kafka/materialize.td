# ENVELOPE MATERIALIZE: statements of CDCv2, repeated and reordered. The messages are those of Materialize's avro-cdcv2.td.

$ set schema
[
  {"type": "array", "items": {"type": "record", "name": "update", "namespace": "com.materialize.cdc", "fields": [
    {"name": "data", "type": {"type": "record", "name": "data", "fields": [
      {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}]}},
    {"name": "time", "type": "long"},
    {"name": "diff", "type": "long"}]}},
  {"type": "record", "name": "progress", "namespace": "com.materialize.cdc", "fields": [
    {"name": "lower", "type": {"type": "array", "items": "long"}},
    {"name": "upper", "type": {"type": "array", "items": "long"}},
    {"name": "counts", "type": {"type": "array", "items": {"type": "record", "name": "counts", "fields": [
      {"name": "time", "type": "long"}, {"name": "count", "type": "long"}]}}}]}
]

$ kafka-create-topic topic=cdc partitions=3

$ kafka-ingest topic=cdc format=avro schema=${schema} partition=1
{"array": [{"data": {"id": 5, "price": {"int": 10}}, "time": 5, "diff": 1}, {"data": {"id": 5, "price": {"int": 12}}, "time": 4, "diff": 1}]}
{"array": [{"data": {"id": 5, "price": {"int": 12}}, "time": 5, "diff": -1}]}

$ kafka-ingest topic=cdc format=avro schema=${schema} partition=2
{"com.materialize.cdc.progress": {"lower": [0], "upper": [3], "counts": []}}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

> CREATE SOURCE cdc FROM KAFKA CONNECTION k (TOPIC 'testdrive-cdc-${testdrive.seed}', STALL TIMEOUT '0s')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE MATERIALIZE

> SELECT upstream_frontier, open_updates FROM mz_internal.mz_source_frontiers f JOIN mz_sources s USING (id) WHERE name = 'cdc'
3 3

> SELECT id, price FROM cdc

# One of the updates at time 6 is missing.
$ kafka-ingest topic=cdc format=avro schema=${schema} partition=0
{"com.materialize.cdc.progress": {"lower": [3], "upper": [10], "counts": [{"time": 4, "count": 1}, {"time": 5, "count": 2}, {"time": 6, "count": 1}]}}

> SELECT id, price FROM cdc
5 10

> SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 'cdc'
stalled "the history of \"testdrive-cdc-${testdrive.seed}\" is incomplete at time 6: 0 of 1 updates have arrived"

> SELECT upstream_frontier, open_updates, missing_updates FROM mz_internal.mz_source_frontiers
6 0 1

$ kafka-ingest topic=cdc format=avro schema=${schema} partition=0
{"array": [{"data": {"id": 6, "price": {"int": 10}}, "time": 6, "diff": 1}]}

> SELECT id, price FROM cdc
5 10
6 10

> SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'cdc'
running

# Repetitions have no effect, and a message that is none is counted.
$ kafka-ingest topic=cdc format=avro schema=${schema} partition=1 repeat=3
{"array": [{"data": {"id": 5, "price": {"int": 10}}, "time": 5, "diff": 1}, {"data": {"id": 6, "price": {"int": 10}}, "time": 6, "diff": 1}]}
{"com.materialize.cdc.progress": {"lower": [3], "upper": [6], "counts": [{"time": 4, "count": 1}, {"time": 5, "count": 2}]}}

$ kafka-ingest topic=cdc format=bytes partition=1
junk

$ kafka-ingest topic=cdc format=avro schema=${schema} partition=2
{"com.materialize.cdc.progress": {"lower": [10], "upper": [], "counts": [{"time": 15, "count": 1}]}}
{"array": [{"data": {"id": 6, "price": {"int": 10}}, "time": 15, "diff": -1}]}

> SELECT id, price FROM cdc
5 10

> SELECT upstream_frontier, open_updates, missing_updates, duplicate_updates, invalid_messages FROM mz_internal.mz_source_frontiers
<null> 0 0 6 1

! CREATE SOURCE keyed FROM KAFKA CONNECTION k (TOPIC 'testdrive-cdc-${testdrive.seed}')
  KEY FORMAT TEXT VALUE FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE MATERIALIZE
contains: KEY FORMAT and INCLUDE are not supported with ENVELOPE MATERIALIZE

! CREATE SOURCE text FROM KAFKA CONNECTION k (TOPIC 'testdrive-cdc-${testdrive.seed}') FORMAT TEXT ENVELOPE MATERIALIZE
contains: ENVELOPE MATERIALIZE of a Kafka source requires FORMAT AVRO or JSON

# JSON: the column list has the types. The messages of two writers are in any order and in any partition.
! CREATE SOURCE json FROM KAFKA CONNECTION k (TOPIC 'testdrive-cdc-${testdrive.seed}') FORMAT JSON ENVELOPE MATERIALIZE
contains: FORMAT JSON ENVELOPE MATERIALIZE requires the columns of the data

! CREATE SOURCE json (data jsonb) FROM KAFKA CONNECTION k (TOPIC 'testdrive-cdc-${testdrive.seed}') FORMAT JSON
contains: types of the columns of a source from KAFKA are not supported

$ kafka-create-topic topic=json partitions=3

$ kafka-ingest topic=json format=bytes partition=2
{"com.materialize.cdc.progress":{"lower":[4],"upper":[9],"counts":[{"time":7,"count":1}]}}
{"array":[{"data":{"id":1,"price":"1.50","more":{"a":[1.0]}},"time":3,"diff":1}]}

$ kafka-ingest topic=json format=bytes partition=0
{"com.materialize.cdc.progress":{"lower":[0],"upper":[7],"counts":[{"time":3,"count":2}]}}
{"array":[{"data":{"id":2},"time":3,"diff":2},{"data":{"id":1,"price":"1.50","more":{"a":[1.0]}},"time":3,"diff":1}]}
{"array":[{"data":{"id":"x"},"time":3,"diff":1}]}

> CREATE SOURCE json (id bigint NOT NULL, price numeric(10, 2), more jsonb)
  FROM KAFKA CONNECTION k (TOPIC 'testdrive-json-${testdrive.seed}') FORMAT JSON ENVELOPE MATERIALIZE

> SELECT * FROM json
1 1.50 "{\"a\": [1.0]}"
2 <null> <null>
2 <null> <null>

$ kafka-ingest topic=json format=bytes partition=1
{"array":[{"data":{"id":2},"time":7,"diff":-1}]}

> SELECT id, price FROM json
1 1.50
2 <null>

> SELECT upstream_frontier, open_updates, duplicate_updates, invalid_messages
  FROM mz_internal.mz_source_frontiers f JOIN mz_sources s USING (id) WHERE name = 'json'
9 0 1 1
