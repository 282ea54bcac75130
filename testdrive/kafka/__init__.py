"""What the Kafka actions need: clients of brokers (`cluster`) and of a schema `registry`, and formats of messages.

`parts` has the formats of keys and values, `avro` the values of one of them.
"""
