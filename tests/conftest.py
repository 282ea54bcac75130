"""Plugs the fixtures that several rooms share."""

import structlog

# A failure's trace as Python prints it: structlog's own shows every local variable.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.dev.ConsoleRenderer(colors=False)])

pytest_plugins = ["tests.fix_postgres", "tests.fix_spark", "tests.fix_server"]
