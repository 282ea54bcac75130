"""What the Kafka actions need: a client of brokers, a client of a schema registry, and the formats of messages."""
