"""Settings of all tests, and the fixtures of `tests/fix_*.py`."""

import gc
import os
from collections.abc import Generator

import pytest
import structlog
from hypothesis import settings

from server.ingest.kafka import consumer
from tests.examples import DEFAULT_PROFILE

# The second compiler of the JVM costs more processor time than it saves in a run of the tests.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

settings.load_profile(DEFAULT_PROFILE)

# Kafka's brokers answer a waiting fetch when messages arrive, but librdkafka's mock brokers only after the whole wait.
consumer.FETCH_WAIT_S = 0.05

# Plain tracebacks: structlog's own show every local variable.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.dev.ConsoleRenderer(colors=False)])

pytest_plugins = ["tests.fix_postgres", "tests.fix_spark", "tests.fix_server"]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Excludes what was imported from garbage collections, each of which would look at half a million objects."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries report objects that remain at the end."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the errors in the logs of its servers to the report of a failed test: CI does not keep the logs."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        for log in directory.rglob("server.log"):
            lines = [line for line in log.read_text(errors="replace").splitlines() if '"level": "error"' in line]
            report.sections.append((str(log), "\n".join(line.replace("\\n", "\n") for line in lines[-10:])))
    return report
