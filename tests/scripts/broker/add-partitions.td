# Partitions that are added to a topic are read from their beginning, by each source on the topic.

$ set key-schema={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
  schema={"type": "record", "name": "Value", "fields": [{"name": "v", "type": ["null", "string"]}]}

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '${testdrive.schema-registry-url}')

$ kafka-create-topic topic=growing partitions=2

$ kafka-ingest topic=growing format=bytes partition=0
a
b

$ kafka-ingest topic=growing format=bytes partition=1
c

> CREATE SOURCE growing FROM KAFKA CONNECTION k (TOPIC 'testdrive-growing-${testdrive.seed}')
  FORMAT TEXT INCLUDE PARTITION AS p, OFFSET AS o

# Start offsets concern the partitions that they name. The partitions after them begin with their first message.
> CREATE SOURCE later FROM KAFKA CONNECTION k (TOPIC 'testdrive-growing-${testdrive.seed}', START OFFSET (1, 1))
  FORMAT TEXT INCLUDE PARTITION AS p, OFFSET AS o

> SELECT * FROM growing
a 0 0
b 0 1
c 1 0

> SELECT * FROM later
b 0 1

$ kafka-add-partitions topic=growing total-partitions=4

$ kafka-ingest topic=growing format=bytes partition=3
d
e

$ kafka-ingest topic=growing format=bytes partition=0
f

> SELECT * FROM growing
a 0 0
b 0 1
f 0 2
c 1 0
d 3 0
e 3 1

> SELECT * FROM later
b 0 1
f 0 2
d 3 0
e 3 1

# Partitions may be added more than once.
$ kafka-add-partitions topic=growing total-partitions=5

$ kafka-ingest topic=growing format=bytes partition=4
g

$ kafka-ingest topic=growing format=bytes partition=2
h

> SELECT * FROM later
b 0 1
f 0 2
h 2 0
d 3 0
e 3 1
g 4 0

# ENVELOPE UPSERT. With more partitions, Kafka's clients assign a key to another partition. Its later message replaces the row.
$ kafka-create-topic topic=upsert partitions=1

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=0
{"id": 1} {"v": {"string": "one"}}
{"id": 2} {"v": {"string": "two"}}

> CREATE SOURCE upsert FROM KAFKA CONNECTION k (TOPIC 'testdrive-upsert-${testdrive.seed}')
  FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE UPSERT

> SELECT * FROM upsert
1 one
2 two

$ kafka-add-partitions topic=upsert total-partitions=2

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=1
{"id": 2} {"v": {"string": "second"}}
{"id": 3} {"v": {"string": "three"}}

> SELECT * FROM upsert
1 one
2 second
3 three

$ kafka-ingest topic=upsert format=avro schema=${schema} key-format=avro key-schema=${key-schema} partition=1
{"id": 1}

> SELECT * FROM upsert
2 second
3 three
