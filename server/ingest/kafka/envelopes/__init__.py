"""How messages change an output.

`envelope`     the interface, and what all envelopes share
`append`       NONE: each message adds a row
`upsert`       UPSERT and DEBEZIUM UPSERT: the last message of a key is its row
`debezium`     DEBEZIUM: each message says what it retracts and what it adds; repeated ones are recognized
`materialize`  MATERIALIZE: messages are statements of CDCv2
"""
