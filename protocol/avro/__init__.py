"""Avro: schemas, and the decoding and encoding of many messages at a time, from and to Arrow columns.

`schema`     the types of a schema
`columns`    the SQL columns of a schema, with the logical types of Avro, Kafka Connect and Debezium
`cursor`     primitive values of many messages, read together with numpy
`skipper`    the ends of many values of one type, without decoding them
`decoder`    messages with a writer's schema to the columns of a reader's schema
`encoder`    rows of a table to records
`varints`    integers of many messages
`convert`    primitive values to the Arrow types of SQL columns
`plain`      one value at a time: nested values, and the reasons why a message cannot be decoded
`container`  object container files: the header and the blocks
`sequence`   values that follow each other without separators
"""
