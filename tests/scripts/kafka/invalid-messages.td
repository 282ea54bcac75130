# Invalid messages are counted in mz_source_statistics, with the place of the last one and the reason.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

# ENVELOPE MATERIALIZE skips them. What they should have said is missing, and the hint of the stall names the last one.
$ kafka-create-topic topic=cdc partitions=2

$ kafka-ingest topic=cdc format=bytes partition=0
{"array":[{"data":{"id":1},"time":1,"diff":1}]}
nonsense

$ kafka-ingest topic=cdc format=bytes partition=1
{"com.materialize.cdc.progress":{"lower":[0],"upper":[3],"counts":[{"time":1,"count":1},{"time":2,"count":1}]}}

> CREATE SOURCE cdc (id bigint NOT NULL) FROM KAFKA CONNECTION k
  (TOPIC 'testdrive-cdc-${testdrive.seed}', STALL TIMEOUT '0s') FORMAT JSON ENVELOPE MATERIALIZE

> SELECT id FROM cdc
1

> SELECT invalid_messages, last_invalid_message LIKE 'topic "testdrive-cdc-${testdrive.seed}", partition 0, offset 1: %'
  FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'cdc'
1 true

> SELECT status, hint LIKE '% 1 message was invalid, at last topic "testdrive-cdc-${testdrive.seed}", partition 0, offset 1: %'
  FROM mz_internal.mz_source_statuses WHERE name = 'cdc'
stalled true

$ kafka-ingest topic=cdc format=bytes partition=1
{"array":[{"data":{"id":2},"time":2,"diff":"one"}]}
{"array":[{"data":{"id":2},"time":2,"diff":1}]}

> SELECT id FROM cdc
1
2

> SELECT invalid_messages, last_invalid_message LIKE 'topic "testdrive-cdc-${testdrive.seed}", partition 1, offset 1: %'
  FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'cdc'
2 true

> SELECT status, error, hint FROM mz_internal.mz_source_statuses WHERE name = 'cdc'
running <null> <null>

# Other envelopes: the errors of messages, also of those that later messages have repaired.
$ kafka-create-topic topic=keyed

$ kafka-ingest topic=keyed format=bytes key-format=bytes
"a":{

> CREATE SOURCE keyed FROM KAFKA CONNECTION k (TOPIC 'testdrive-keyed-${testdrive.seed}')
  KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT

! SELECT * FROM keyed
contains:Envelope error: Upsert: Value error

> SELECT invalid_messages,
    last_invalid_message LIKE 'Topic "testdrive-keyed-${testdrive.seed}", partition 0, offset 0: Envelope error: Upsert: %'
  FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'keyed'
1 true

$ kafka-ingest topic=keyed format=bytes key-format=bytes
"a":1

> SELECT key, data FROM keyed
"\"a\"" 1

> SELECT invalid_messages FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'keyed'
1
