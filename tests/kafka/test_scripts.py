"""testdrive scripts with Kafka: tests/scripts/kafka."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from testdrive.parser import Action, parse
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.registry import Registry

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[1] / "scripts/kafka"
SEED = 7


def create_topics(kafka: MockCluster, script: Path) -> None:
    """Creates the topics of a script: the mock brokers cannot do it for a client."""
    for command in parse(script.read_text()):
        if isinstance(command, Action) and command.name == "kafka-create-topic":
            partitions = int(command.arguments.get("partitions", "1"))
            kafka.create_topic(f"testdrive-{command.arguments['topic']}-{SEED}", partitions)


async def run_script(script: Path, dsn: str) -> None:
    with MockCluster() as kafka:
        create_topics(kafka, script)
        async with Registry().serving() as registry:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "testdrive", "--url", dsn, "--no-reset", "--default-timeout", "60s"),
                *("--backoff-factor", "1"),  # the pauses of retries do not grow
                *("--kafka-addr", kafka.address, "--schema-registry-url", registry.url, "--seed", str(SEED), script),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.td")), ids=lambda path: path.stem)
async def test_kafka_scripts(script: Path, dsn: str) -> None:
    await run_script(script, dsn)
