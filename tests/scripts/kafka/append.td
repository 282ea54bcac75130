# ENVELOPE NONE: each message adds a row, and INCLUDE adds the metadata of the message.

$ kafka-create-topic topic=append partitions=2

$ kafka-ingest topic=append format=bytes key-format=bytes partition=1 timestamp=1700000000123
  headers=[{"origin": "test"}, {"origin": "last"}, {"raw": [0, 255]}, {"none": null}]
k1:one
k1:one
:without key

$ kafka-ingest topic=append format=bytes key-format=bytes key-terminator=| partition=0 timestamp=1600000000000
a:b|c:d

$ kafka-ingest topic=append format=bytes omit-key=true key-format=bytes partition=0 timestamp=1600000000000
x:y

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE SOURCE append FROM KAFKA CONNECTION k (TOPIC 'testdrive-append-${testdrive.seed}')
  KEY FORMAT TEXT VALUE FORMAT TEXT
  INCLUDE KEY AS k, PARTITION AS p, OFFSET AS o, TIMESTAMP AS ts, HEADER 'origin' AS origin, HEADER 'raw' AS raw BYTES

> SELECT k, text, p, o, ts, origin, raw FROM append
k1 one 1 0 "2023-11-14 22:13:20.123" last \x00\xff
k1 one 1 1 "2023-11-14 22:13:20.123" last \x00\xff
<null> "without key" 1 2 "2023-11-14 22:13:20.123" last \x00\xff
a:b c:d 0 0 "2020-09-13 12:26:40" <null> <null>
<null> x:y 0 1 "2020-09-13 12:26:40" <null> <null>

> CREATE SOURCE plain FROM KAFKA CONNECTION k (TOPIC 'testdrive-append-${testdrive.seed}') FORMAT TEXT

> SELECT text FROM plain
c:d
one
one
"without key"
x:y

! CREATE SOURCE bare FROM KAFKA CONNECTION k (TOPIC 'testdrive-append-${testdrive.seed}') FORMAT TEXT INCLUDE KEY
contains: INCLUDE KEY requires specifying KEY FORMAT

$ kafka-verify-data topic=append format=bytes headers=origin,none
<null> <null> a:b:c:d
<null> <null> :x:y
last <null> k1:one
last <null> k1:one
last <null> :without key
