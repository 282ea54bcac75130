"""testdrive scripts that change topics, which the mock brokers cannot do: tests/scripts/broker."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.kafka.broker.broker import KafkaBroker
from tests.kafka.registry import Registry

pytestmark = pytest.mark.kafka

SCRIPTS = Path(__file__).parents[2] / "scripts/broker"
TIMEOUT_S = 120

_seeds = itertools.count(1)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.td")), ids=lambda path: path.stem)
def test_scripts(script: Path, kafka: KafkaBroker, registry: Registry, connection: psycopg.Connection) -> None:
    info = connection.info
    url = f"postgres://{info.user}@{info.host}:{info.port}/{info.dbname}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "testdrive", "--url", url, "--no-reset", "--default-timeout", "60s"),
            *(
                "--kafka-addr",
                kafka.address,
                "--schema-registry-url",
                registry.url,
                "--seed",
                str(next(_seeds)),
                script,
            ),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout.decode()
