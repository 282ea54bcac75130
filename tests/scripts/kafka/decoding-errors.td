# VALUE DECODING ERRORS = (INLINE): a value that does not decode is a row with the reason, until its key has another.

$ kafka-create-topic topic=inline

$ kafka-ingest topic=inline format=bytes key-format=bytes
"a":1
"b":{not json
"c":3

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE SOURCE inline FROM KAFKA CONNECTION k (TOPIC 'testdrive-inline-${testdrive.seed}')
  KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT (VALUE DECODING ERRORS = (INLINE AS reason))

> SELECT key, data FROM inline WHERE reason IS NULL
"\"a\"" 1
"\"c\"" 3

$ set-regex match="^(Failed to decode JSON).*" replacement=$1

> SELECT key, reason, data FROM inline WHERE reason IS NOT NULL
"\"b\"" "Failed to decode JSON" <null>

> SELECT invalid_messages, last_invalid_message LIKE 'Topic "testdrive-inline-${testdrive.seed}", partition 0, offset 1: Failed%'
  FROM mz_internal.mz_source_statistics JOIN mz_sources USING (id) WHERE name = 'inline'
1 true

$ kafka-ingest topic=inline format=bytes key-format=bytes
"a":]
"b":2
"c":

> SELECT key, reason, data FROM inline
"\"a\"" "Failed to decode JSON" <null>
"\"b\"" <null> 2

# The bytes of a key are not JSON: queries fail with the error, until the key has no value.
$ kafka-ingest topic=inline format=bytes key-format=bytes
bad:1

> SELECT status, error LIKE 'Envelope error: Upsert: Key decode: Failed to decode JSON%'
  FROM mz_internal.mz_source_statuses WHERE name = 'inline'
stalled true

! SELECT key, reason, data FROM inline
contains:Envelope error: Upsert: Key decode: Failed to decode JSON
detail:Topic "testdrive-inline-${testdrive.seed}", partition 0, offset 6.

$ kafka-ingest topic=inline format=bytes key-format=bytes
bad:
"a":0

> SELECT status, error IS NULL FROM mz_internal.mz_source_statuses WHERE name = 'inline'
running true

> SELECT key, reason, data FROM inline
"\"a\"" <null> 0
"\"b\"" <null> 2
