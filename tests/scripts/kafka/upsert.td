# ENVELOPE UPSERT: the last message of a key is its row, and a message without value deletes it.

$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
  schema={"type": "record", "name": "Value", "fields": [{"name": "v", "type": ["null", "string"]}]}

$ kafka-create-topic topic=upsert partitions=2

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=0
{"id": 1} {"v": {"string": "one"}}
{"id": 2} {"v": {"string": "two"}}
{"id": 2} {"v": {"string": "second"}}
{"id": 3} {"v": null}
{"id": 4}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

> CREATE SOURCE upsert FROM KAFKA CONNECTION k (TOPIC 'testdrive-upsert-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE UPSERT

> SELECT id, v FROM upsert
1 one
2 second
3 <null>

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=0
{"id": 1}
{"id": 3} {"v": {"string": "three"}}
{"id": 9}

> SELECT id, v FROM upsert
2 second
3 three

# A key may return after its tombstone. Another partition has other keys.
$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=1
  repeat=3 start-iteration=10
{"id": ${kafka-ingest.iteration}} {"v": {"string": "n${kafka-ingest.iteration}"}}

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=0
{"id": 1} {"v": {"string": "again"}}

> SELECT id, v FROM upsert
1 again
2 second
3 three
10 n10
11 n11
12 n12

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} omit-value=true
  partition=1 repeat=3 start-iteration=10
{"id": ${kafka-ingest.iteration}}

> SELECT id, v FROM upsert
1 again
2 second
3 three

$ kafka-verify-data topic=upsert format=avro partial-search=5
{"id": 3} {"v": null}
{"id": 4} <null>
