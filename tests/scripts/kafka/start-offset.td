# START OFFSET: by partition, the first message to read. Negative numbers count from the end.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

$ kafka-create-topic topic=starts partitions=2

$ kafka-ingest topic=starts format=bytes partition=0
a0
a1
a2

$ kafka-ingest topic=starts format=bytes partition=1
b0
b1

> CREATE SOURCE later FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (1, 1)) FORMAT TEXT

> SELECT text FROM later
a1
a2
b1

# A partition that is not named is read from its beginning.
> CREATE SOURCE one FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (2)) FORMAT TEXT

> SELECT text FROM one
a2
b0
b1

> CREATE SOURCE ends FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (-1, -2)) FORMAT TEXT

> SELECT text FROM ends
a2
b0
b1

! CREATE SOURCE many FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (0, 0, 0)) FORMAT TEXT
exact: START OFFSET has 3 offsets, but topic "testdrive-starts-${testdrive.seed}" has 2 partitions

# An offset after the end begins at the end.
> CREATE SOURCE beyond FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (100, 100)) FORMAT TEXT

> SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'beyond'
running

> SELECT offset_committed FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'beyond'
5

$ kafka-ingest topic=starts format=bytes partition=0
a3

> SELECT text FROM beyond
a3

> SELECT text FROM later
a1
a2
a3
b1

# With ENVELOPE UPSERT, keys whose messages are all before the start have no rows.
$ kafka-create-topic topic=keyed

$ kafka-ingest topic=keyed format=bytes key-format=bytes
a:1
b:1
a:2

> CREATE SOURCE keyed FROM KAFKA CONNECTION k (TOPIC 'testdrive-keyed-${testdrive.seed}', START OFFSET (2))
  KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT

> SELECT key, text FROM keyed
a 2

! CREATE SOURCE x FROM KAFKA CONNECTION k (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (a)) FORMAT TEXT
contains:START OFFSET must be a list of integers, START TIMESTAMP an integer

! CREATE SOURCE x FROM KAFKA CONNECTION k
  (TOPIC 'testdrive-starts-${testdrive.seed}', START OFFSET (1), START TIMESTAMP 1) FORMAT TEXT
contains:cannot specify START TIMESTAMP and START OFFSET
