"""Kafka as a source.

`messages`       messages as columns
`registry`       the client of a Confluent schema registry
`avro_format`    FORMAT AVRO
`changes_format` FORMAT AVRO of ENVELOPE MATERIALIZE
`text_formats`   FORMAT JSON, TEXT, BYTES and CSV
`schemas`        the schemas and registries that a format names
`layouts`        the columns of an output: from keys, values and metadata
`errors`         messages that could not be decoded, until they are retracted
`envelopes`      how messages change the output
`positions`      positions in the log of the upstream database, by which repetitions are recognized
`consumer`       the consumer of topics, in a thread of its own; `brokers`: why it cannot connect
`transactions`   messages of several topics by upstream transaction; `transaction_topic` reads the metadata
`start`          START OFFSET and START TIMESTAMP
`upstream`       reads topics from stored offsets
`kind`           the kind of source: CREATE SOURCE ... FROM KAFKA
"""
