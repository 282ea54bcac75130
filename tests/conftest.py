"""Plugs the fixtures that several rooms share."""

import os

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
