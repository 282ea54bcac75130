"""Plugs the fixtures that several rooms share."""

import os
from collections.abc import Generator

import pytest
import structlog
from hypothesis import settings

# Tests do not wait for speed: of a short run, compiling for the long one is the most.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long an example takes depends on what else the machine does; `timeout` ends what does not end.
settings.register_profile("tidewire", deadline=None)
settings.load_profile("tidewire")

# A failure's trace as Python prints it: structlog's own shows every local variable.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.dev.ConsoleRenderer(colors=False)])

pytest_plugins = ["tests.fix_postgres", "tests.fix_spark", "tests.fix_server"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failure, what its servers' logs have of errors: where CI runs, nobody can look there afterwards."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        for log in directory.rglob("server.log"):
            lines = [line for line in log.read_text(errors="replace").splitlines() if '"level": "error"' in line]
            report.sections.append((str(log), "\n".join(line.replace("\\n", "\n") for line in lines[-10:])))
    return report
