"""Tests on Apache Kafka instead of librdkafka's mock brokers: `make test-kafka`."""
