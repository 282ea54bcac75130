"""Kafka as a source.

`messages`       messages as columns
`registry`       the client of a Confluent schema registry
`avro_format`    FORMAT AVRO
`changes_format` FORMAT AVRO of ENVELOPE MATERIALIZE
`text_formats`   FORMAT JSON, TEXT, BYTES and CSV
`layout`         the columns of an output: from keys, values and metadata
`errors`         messages that could not be decoded, until they are retracted
`envelopes`      how messages change the output
`key_join`       the old rows of a step's keys
`consumer`       the consumer of topics, in a thread of its own
`transactions`   messages of several topics by upstream transaction; `transaction_topic` reads the metadata
`upstream`       reads topics from stored offsets
`kind`           the kind of source: CREATE SOURCE ... FROM KAFKA
"""
