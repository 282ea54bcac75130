"""Sinks into Kafka, without brokers."""
