"""kill -9 of the server and of the broker while messages are written: each message has its effect once.

TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.examples import seeds
from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.broker.load import Load
from tests.kafka.broker.reading import MOMENTS, connected, serving, until_status
from tests.kafka.registry import Registry
from tests.polling import HANG_S

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("seed", seeds(2))
def test_the_server_is_killed(kafka: KafkaBroker, registry: Registry, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    load = Load(kafka, registry, f"server{seed}", random)
    with serving(tmp_path) as server, connected(server, kafka, registry) as connection:
        load.create(connection)
        load.write()
    for moment in MOMENTS:
        # The server also commits while nothing is read: it reaches every moment.
        with serving(tmp_path, f"{moment}:{random.randint(4, 40)}") as server:
            while server.process.poll() is None:
                load.write()
    with serving(tmp_path) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        load.write()
        load.check(connection)


@pytest.mark.parametrize("seed", seeds(1))
def test_the_broker_is_killed(kafka: KafkaBroker, registry: Registry, tmp_path: Path, seed: int) -> None:
    load = Load(kafka, registry, f"broker{seed}", Random(seed))
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            load.write()

    with serving(tmp_path) as server, connected(server, kafka, registry) as connection:
        load.create(connection)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for stays_down in (True, False):
                load.written.clear()
                assert load.written.wait(HANG_S)
                kafka.kill()
                if stays_down:
                    until_status(connection, load.topics["append"], "stalled")
                kafka.start()
        finally:
            ended.set()
            writer.join()
        load.check(connection)
