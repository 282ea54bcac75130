"""Kafka as a source.

`messages`      messages as columns
`registry`      the client of a Confluent schema registry
`avro_format`   FORMAT AVRO
`text_formats`  FORMAT JSON, TEXT, BYTES and CSV
`layout`        the columns of an output: from keys, values and metadata
`errors`        messages that could not be decoded, until they are retracted
`envelopes`     how messages change the output
`consumer`      the consumer of topics, in a thread of its own
`upstream`      reads topics from stored offsets
`kind`          the kind of source: CREATE SOURCE ... FROM KAFKA
"""
