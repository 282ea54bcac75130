# A source whose topic is deleted fails. Its rows remain. It does not continue with another topic of the same name.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

$ kafka-create-topic topic=gone partitions=2

$ kafka-create-topic topic=other

$ kafka-ingest topic=gone format=bytes partition=0
a

$ kafka-ingest topic=gone format=bytes partition=1
b

$ kafka-ingest topic=other format=bytes
x

> CREATE SOURCE gone FROM KAFKA CONNECTION k (TOPIC 'testdrive-gone-${testdrive.seed}') FORMAT TEXT

> CREATE SOURCE other FROM KAFKA CONNECTION k (TOPIC 'testdrive-other-${testdrive.seed}') FORMAT TEXT

> CREATE MATERIALIZED VIEW copy AS SELECT * FROM gone

> SELECT * FROM copy
a
b

$ kafka-delete-topic-flaky topic=gone

$ set-regex match=testdrive-gone-\d+ replacement=<TOPIC>

> SELECT name, status, error FROM mz_internal.mz_source_statuses WHERE name = 'gone'
gone failed "topic \"<TOPIC>\" does not exist"

# Reads return the rows that were committed, and views over them can still be created.
> SELECT * FROM gone
a
b

> SELECT * FROM copy
a
b

# Sources on other topics are not affected.
$ kafka-ingest topic=other format=bytes
y

> SELECT * FROM other
x
y

> SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'other'
running

! CREATE SOURCE another FROM KAFKA CONNECTION k (TOPIC 'testdrive-gone-${testdrive.seed}') FORMAT TEXT
contains:topic "<TOPIC>" does not exist

# A topic of the same name is another topic: the source does not read it, whereas a new source does.
$ kafka-create-topic topic=gone

$ kafka-ingest topic=gone format=bytes
c

> CREATE SOURCE another FROM KAFKA CONNECTION k (TOPIC 'testdrive-gone-${testdrive.seed}') FORMAT TEXT

> SELECT * FROM another
c

> SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'gone'
failed

> SELECT * FROM gone
a
b

> DROP SOURCE gone CASCADE

> CREATE SOURCE gone FROM KAFKA CONNECTION k (TOPIC 'testdrive-gone-${testdrive.seed}') FORMAT TEXT

> SELECT * FROM gone
c
