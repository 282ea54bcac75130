# START TIMESTAMP: the first message of each partition with at least this timestamp, in milliseconds. Negative: before now.

# Kafka accepts no timestamps in the future, and deletes messages with old ones.
$ set-from-sql var=first
SELECT (extract(epoch FROM now() - interval '50 seconds') * 1000)::bigint::text

$ set-from-sql var=middle
SELECT (${first} + 500)::text

$ set-from-sql var=last
SELECT (${first} + 1000)::text

$ set-from-sql var=later
SELECT (${first} + 2000)::text

$ kafka-create-topic topic=dated partitions=2

$ kafka-ingest topic=dated format=bytes partition=0 timestamp=${first}
a0

$ kafka-ingest topic=dated format=bytes partition=0 timestamp=${last}
a1

$ kafka-ingest topic=dated format=bytes partition=1 timestamp=${middle}
b0

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE SOURCE exact FROM KAFKA CONNECTION k (TOPIC 'testdrive-dated-${testdrive.seed}', START TIMESTAMP ${middle})
  FORMAT TEXT

> SELECT text FROM exact
a1
b0

# A partition without such a message is read from its end.
> CREATE SOURCE one FROM KAFKA CONNECTION k (TOPIC 'testdrive-dated-${testdrive.seed}', START TIMESTAMP ${last})
  FORMAT TEXT

> SELECT text FROM one
a1

> CREATE SOURCE after FROM KAFKA CONNECTION k (TOPIC 'testdrive-dated-${testdrive.seed}', START TIMESTAMP ${later})
  FORMAT TEXT

> SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'after'
running

# A minute before now: these messages have later timestamps.
> CREATE SOURCE ago FROM KAFKA CONNECTION k (TOPIC 'testdrive-dated-${testdrive.seed}', START TIMESTAMP -60000)
  FORMAT TEXT

> SELECT text FROM ago
a0
a1
b0

# The start matters once. Later messages are read whatever their timestamps.
$ kafka-ingest topic=dated format=bytes partition=1 timestamp=${first}
b1

> SELECT text FROM exact
a1
b0
b1

> SELECT text FROM after
b1

! CREATE SOURCE x FROM KAFKA CONNECTION k (TOPIC 'testdrive-dated-${testdrive.seed}', START TIMESTAMP 'noon') FORMAT TEXT
contains:START OFFSET must be a list of integers, START TIMESTAMP an integer
