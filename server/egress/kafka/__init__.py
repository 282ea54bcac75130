"""A topic of Kafka as a sink.

`kind`      CREATE SINK: checks the definition, the topic and the schemas, returns the downstream
`row_topic` ENVELOPE UPSERT and DEBEZIUM: transactions with changes and the frontier after them
`output`    ENVELOPE MATERIALIZE: messages of CDCv2, which may be repeated
`messages`  the keys and values of messages, encoded together
`schemas`   the Avro schemas of a sink, and their ids in the registry
`progress`  the topic with the frontiers of sinks
`topic`     the options of a topic, and its creation
`producer`  the producer, in a thread of its own
"""
