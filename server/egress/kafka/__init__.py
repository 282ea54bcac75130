"""Sinks into Kafka topics.

`kind`      CREATE SINK: checks the definition, the topic and the schemas, returns the downstream
`row_topic` ENVELOPE UPSERT and DEBEZIUM: each transaction contains changes and the frontier after them
`output`    ENVELOPE MATERIALIZE: CDCv2 messages, at least once
`partitioning` and `headers`  the options PARTITION BY and HEADERS
`schemas`   the Avro schemas of a sink, and their registration
`progress`  the progress topic, which stores the frontiers of sinks
`topic`     the options of a topic, and its creation
`producer`  the Kafka producer, which runs in its own thread
"""
