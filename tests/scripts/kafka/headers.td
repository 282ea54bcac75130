# INCLUDE HEADERS is a jsonb array of objects with the bytes of the value as text, and START OFFSET skips messages.

$ kafka-create-topic topic=headers partitions=2

$ kafka-ingest topic=headers format=bytes partition=0
skipped

$ kafka-ingest topic=headers format=bytes partition=0 headers=[{"a": "x"}, {"a": "y"}, {"raw": [0, 255]}, {"none": null}]
several

$ kafka-ingest topic=headers format=bytes partition=1
without

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

> CREATE SOURCE headers FROM KAFKA CONNECTION k (TOPIC 'testdrive-headers-${testdrive.seed}', START OFFSET (1))
  FORMAT TEXT INCLUDE HEADERS AS h, PARTITION

> SELECT text, h::text, partition FROM headers
several "[{\"key\": \"a\", \"value\": \"\\\\x78\"}, {\"key\": \"a\", \"value\": \"\\\\x79\"}, {\"key\": \"raw\", \"value\": \"\\\\x00ff\"}, {\"key\": \"none\", \"value\": null}]" 0
without [] 1
