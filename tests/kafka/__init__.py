"""Kafka for tests: a broker in a process of its own, a schema registry, and messages that Debezium wrote."""
