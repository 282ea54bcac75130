# INCLUDE PARTITION, OFFSET, TIMESTAMP, HEADERS and HEADER: columns after those of the key and the value.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

$ kafka-create-topic topic=meta partitions=2

$ kafka-ingest topic=meta format=bytes key-format=bytes partition=1 timestamp=1700000000123
  headers={"origin": "test", "raw": [0, 255]}
a:1

$ kafka-ingest topic=meta format=bytes key-format=bytes partition=0 timestamp=1600000000000
b:2

> CREATE SOURCE meta FROM KAFKA CONNECTION k (TOPIC 'testdrive-meta-${testdrive.seed}')
  KEY FORMAT TEXT VALUE FORMAT TEXT
  INCLUDE PARTITION, OFFSET, TIMESTAMP, HEADERS, HEADER 'origin' AS origin, HEADER 'raw' AS raw BYTES
  ENVELOPE UPSERT

> SHOW COLUMNS FROM meta
name nullable type
---
key false text
text false text
partition false integer
offset false bigint
timestamp false "timestamp without time zone"
headers false jsonb
origin true text
raw true bytea

> SELECT key, text, partition, "offset", timestamp, origin, raw FROM meta
a 1 1 0 "2023-11-14 22:13:20.123" test \x00\xff
b 2 0 0 "2020-09-13 12:26:40" <null> <null>

> SELECT key, headers::text FROM meta
a "[{\"key\": \"origin\", \"value\": \"\\\\x74657374\"}, {\"key\": \"raw\", \"value\": \"\\\\x00ff\"}]"
b []

# The metadata of a row are those of the last message of its key.
$ kafka-ingest topic=meta format=bytes key-format=bytes partition=1 timestamp=1700000001000 headers={"origin": "later"}
a:1

> SELECT key, text, partition, "offset", timestamp, origin, raw FROM meta
a 1 1 1 "2023-11-14 22:13:21" later <null>
b 2 0 0 "2020-09-13 12:26:40" <null> <null>

$ kafka-ingest topic=meta format=bytes key-format=bytes partition=1
a:

> SELECT key FROM meta
b

# Other names.
> CREATE SOURCE renamed FROM KAFKA CONNECTION k (TOPIC 'testdrive-meta-${testdrive.seed}', START OFFSET (0, 3))
  FORMAT TEXT INCLUDE PARTITION AS p, OFFSET AS o, TIMESTAMP AS ts

> SELECT text, p, o, ts FROM renamed WHERE p = 0
2 0 0 "2020-09-13 12:26:40"

! CREATE SOURCE twice FROM KAFKA CONNECTION k (TOPIC 'testdrive-meta-${testdrive.seed}')
  FORMAT TEXT INCLUDE PARTITION AS x, OFFSET AS x
contains:column "x" specified more than once
