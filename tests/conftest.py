"""Plugs the fixtures that several rooms share."""

pytest_plugins = ["tests.fix_postgres", "tests.fix_spark", "tests.fix_server"]
