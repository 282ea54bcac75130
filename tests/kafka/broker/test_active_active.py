"""Servers that write one topic of Apache Kafka, and are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.active_active import PARTITIONS, check_handover, check_killed_server, check_killed_writers
from tests.kafka.broker.broker import KafkaBroker

pytestmark = pytest.mark.kafka


def test_two_servers_write_a_topic_and_are_killed(kafka: KafkaBroker, tmp_path: Path) -> None:
    topics = ("bids", "bids-out")
    for topic in topics:
        kafka.create_topic(topic, PARTITIONS)
    check_killed_writers(kafka, topics, tmp_path)


def test_a_client_continues_when_a_server_is_killed(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("asks", PARTITIONS)
    check_killed_server(kafka, "asks", tmp_path)


def test_a_second_server_takes_over_a_topic(kafka: KafkaBroker, tmp_path: Path) -> None:
    topics = ("offers", "offers-out")
    for topic in topics:
        kafka.create_topic(topic, PARTITIONS)
    check_handover(kafka, topics, tmp_path)
