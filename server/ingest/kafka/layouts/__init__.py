"""The columns of an output, and where they are found in a message: in its key, its value or its metadata.

`layout`        the layout of an output, and the schemas from which it is derived
`by_envelope`   determines the layout for the envelope of a format
`key_value`     the layout of ENVELOPE NONE and UPSERT
`debezium`      the layout of ENVELOPE DEBEZIUM and DEBEZIUM UPSERT
`changes`       the layout of ENVELOPE MATERIALIZE
`metadata`      the columns of INCLUDE
`transactions`  the formats of messages by which topics are merged
`refusals`      the error for what is not supported
"""
